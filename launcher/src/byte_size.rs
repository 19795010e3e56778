//! Amounts of memory as people write them: `4294967296`, `4GiB`, `500 MB`.

use std::str::FromStr;

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start().to_ascii_lowercase();
        let factor: u64 = match unit.as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => {
                return Err(format!(
                    "`{unit}` is no unit: use KiB, MiB, GiB, KB, MB or GB"
                ));
            }
        };
        let number: u64 = number
            .parse()
            .map_err(|_| "not a whole number of bytes".to_owned())?;
        match number.checked_mul(factor) {
            Some(bytes) if bytes > 0 => Ok(Self(bytes)),
            Some(_) => Err("must be above 0".to_owned()),
            None => Err("too large".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_people_write() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("4GiB", 4 << 30),
            ("4g", 4 << 30),
            ("500 MB", 500_000_000),
            (" 2kib ", 2048),
            ("3TB", 3_000_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in [
            "",
            "GiB",
            "-1",
            "1.5GiB",
            "4 parsecs",
            "0",
            "99999999999TiB",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
