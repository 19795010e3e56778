//! Tensor descriptions of a GGUF file.

use super::cursor::Cursor;
use crate::CheckpointError;

/// How a tensor's numbers are stored. Numbers and block sizes are ggml's; types that ggml removed are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    id: u32,
    name: &'static str,
    block_elements: u64,
    block_bytes: u64,
}

const fn kind(id: u32, name: &'static str, block_elements: u64, block_bytes: u64) -> TensorType {
    TensorType {
        id,
        name,
        block_elements,
        block_bytes,
    }
}

const TENSOR_TYPES: [TensorType; 32] = [
    kind(0, "F32", 1, 4),
    kind(1, "F16", 1, 2),
    kind(2, "Q4_0", 32, 18),
    kind(3, "Q4_1", 32, 20),
    kind(6, "Q5_0", 32, 22),
    kind(7, "Q5_1", 32, 24),
    kind(8, "Q8_0", 32, 34),
    kind(9, "Q8_1", 32, 36),
    kind(10, "Q2_K", 256, 84),
    kind(11, "Q3_K", 256, 110),
    kind(12, "Q4_K", 256, 144),
    kind(13, "Q5_K", 256, 176),
    kind(14, "Q6_K", 256, 210),
    kind(15, "Q8_K", 256, 292),
    kind(16, "IQ2_XXS", 256, 66),
    kind(17, "IQ2_XS", 256, 74),
    kind(18, "IQ3_XXS", 256, 98),
    kind(19, "IQ1_S", 256, 50),
    kind(20, "IQ4_NL", 32, 18),
    kind(21, "IQ3_S", 256, 110),
    kind(22, "IQ2_S", 256, 82),
    kind(23, "IQ4_XS", 256, 136),
    kind(24, "I8", 1, 1),
    kind(25, "I16", 1, 2),
    kind(26, "I32", 1, 4),
    kind(27, "I64", 1, 8),
    kind(28, "F64", 1, 8),
    kind(29, "IQ1_M", 256, 56),
    kind(30, "BF16", 1, 2),
    kind(34, "TQ1_0", 256, 54),
    kind(35, "TQ2_0", 256, 66),
    kind(39, "MXFP4", 32, 17),
];

/// What the workers can read.
const READABLE: [&str; 11] = [
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K",
];

impl TensorType {
    /// By ggml's number.
    pub fn from_id(id: u32) -> Option<Self> {
        TENSOR_TYPES.into_iter().find(|known| known.id == id)
    }

    /// ggml's number.
    pub fn id(self) -> u32 {
        self.id
    }

    /// ggml's name: `Q4_1`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Whether the workers can read it.
    pub fn is_readable(self) -> bool {
        READABLE.contains(&self.name)
    }
}

/// One tensor: name, shape and where its bytes lie. Its data is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// `blk.0.attn_q.weight`.
    pub name: String,
    /// How the numbers are stored.
    pub tensor_type: TensorType,
    /// Dimensions in the file's order, the fastest first: a linear weight is `[in, out]`.
    pub dimensions: Vec<u64>,
    /// First byte, from the start of the file.
    pub start: u64,
    /// Length in bytes.
    pub num_bytes: u64,
}

impl TensorInfo {
    /// Dimensions in torch's order, the slowest first: a linear weight is `[out, in]`.
    pub fn shape(&self) -> Vec<u64> {
        self.dimensions.iter().rev().copied().collect()
    }

    /// Reads one description; `start` is still relative to the data section.
    pub(super) fn read(cursor: &mut Cursor) -> Result<Self, CheckpointError> {
        let name = cursor.string("a tensor's name")?;
        let what = format!("tensor `{name}`");
        let malformed = |cursor: &Cursor, problem: String| {
            CheckpointError::malformed(cursor.path(), format!("{what} {problem}"))
        };
        let num_dimensions = cursor.u32(&what)?;
        if num_dimensions > 4 {
            return Err(malformed(
                cursor,
                format!("has {num_dimensions} dimensions, at most 4 are allowed"),
            ));
        }
        let mut dimensions = Vec::new();
        for _ in 0..num_dimensions {
            dimensions.push(cursor.u64(&what)?);
        }
        let type_id = cursor.u32(&what)?;
        let start = cursor.u64(&what)?;
        let Some(tensor_type) = TensorType::from_id(type_id) else {
            return Err(malformed(
                cursor,
                format!("has the unknown type number {type_id}"),
            ));
        };
        let num_elements = dimensions
            .iter()
            .try_fold(1_u64, |product, size| product.checked_mul(*size));
        let row = dimensions.first().copied().unwrap_or(1);
        if row % tensor_type.block_elements != 0 {
            let problem = format!(
                "has rows of {row} numbers, which {} cannot hold (blocks of {})",
                tensor_type.name, tensor_type.block_elements
            );
            return Err(malformed(cursor, problem));
        }
        let num_bytes = num_elements.and_then(|count| {
            (count / tensor_type.block_elements).checked_mul(tensor_type.block_bytes)
        });
        let Some(num_bytes) = num_bytes else {
            return Err(malformed(
                cursor,
                format!("has an impossible size {dimensions:?}"),
            ));
        };
        Ok(Self {
            name,
            tensor_type,
            dimensions,
            start,
            num_bytes,
        })
    }
}
