//! Bounds of numbers. The library keeps them as 64-bit floats, writes them out digit by digit and counts integers in 64
//! bits: what it could not hold is refused, and what it would round is rounded so that no invalid number passes.

use crate::error::GrammarError;
use serde_json::{Map, Value};

/// The largest float below 2⁶³.
const MOST: f64 = 9_223_372_036_854_774_784.0;
/// From here on floats do not hold every integer.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// From here on the library needs a bound on the other side, too.
const ALONE: f64 = 1e18;
/// Digits after the point.
const MOST_DECIMALS: usize = 18;

/// On which side of the numbers a bound lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Lower,
    Upper,
}

/// Each bound, its side, and whether it is itself out of bounds.
const BOUNDS: [(&str, Side, bool); 4] = [
    ("minimum", Side::Lower, false),
    ("exclusiveMinimum", Side::Lower, true),
    ("maximum", Side::Upper, false),
    ("exclusiveMaximum", Side::Upper, true),
];

impl Side {
    /// The next float that excludes more.
    fn stricter(self, value: f64) -> f64 {
        match self {
            Self::Lower => value.next_up(),
            Self::Upper => value.next_down(),
        }
    }

    /// A float at or on the inner side of a number.
    fn float(self, value: &Value, excluded: bool) -> Option<f64> {
        let float = value.as_f64()?;
        let exact = value
            .as_i64()
            .map(i128::from)
            .or_else(|| value.as_u64().map(i128::from));
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the float is one of 64 bits, or saturates beyond them"
        )]
        let rounded = float as i128;
        let is_outside = exact.is_some_and(|exact| match self {
            Self::Lower => rounded < exact,
            Self::Upper => rounded > exact,
        });
        // Where floats are further apart than integers, one more or less is the same float.
        let is_lost = excluded && float.abs() >= EXACT;
        Some(if is_outside || is_lost {
            self.stricter(float)
        } else {
            float
        })
    }

    /// Nothing that the library can hold is within it.
    fn excludes_all(self, float: f64) -> bool {
        match self {
            Self::Lower => float > MOST,
            Self::Upper => float < -MOST,
        }
    }
}

/// Refuses bounds and constants that cannot be held.
pub(super) fn check(map: &Map<String, Value>, pointer: &str) -> Result<(), GrammarError> {
    let refuse = |what| {
        Err(GrammarError::Schema {
            what,
            pointer: pointer.to_owned(),
        })
    };
    for (keyword, side, excluded) in BOUNDS {
        let Some(value) = map.get(keyword) else {
            continue;
        };
        let Some(float) = side.float(value, excluded) else {
            continue;
        };
        if side.excludes_all(float) {
            return refuse(format!(
                "`{keyword}` is {value}: what it leaves is beyond 64 bits, which is not supported"
            ));
        }
        if decimals(float) > MOST_DECIMALS {
            return refuse(format!(
                "`{keyword}` is {value}: bounds have at most {MOST_DECIMALS} digits after the point"
            ));
        }
    }
    for keyword in ["const", "enum"] {
        if let Some(number) = map.get(keyword).and_then(inexact) {
            return refuse(format!(
                "`{keyword}` holds {number}: an integer that no 64-bit float holds is not supported"
            ));
        }
    }
    Ok(())
}

/// Makes the bounds what the library can hold, never wider than they were.
pub(super) fn fit(map: &mut Map<String, Value>) {
    let mut large = [false; 2];
    let mut bounded = [false; 2];
    for (keyword, side, excluded) in BOUNDS {
        let Some(value) = map.get_mut(keyword) else {
            continue;
        };
        let Some(float) = side.float(value, excluded) else {
            continue;
        };
        let fitted = float.clamp(-MOST, MOST);
        if float.abs() >= EXACT {
            *value = Value::from(fitted);
        }
        bounded[side as usize] = true;
        large[side as usize] |= match side {
            Side::Lower => fitted >= ALONE,
            Side::Upper => fitted <= -ALONE,
        };
    }
    if large[Side::Lower as usize] && !bounded[Side::Upper as usize] {
        map.insert("maximum".to_owned(), Value::from(MOST));
    }
    if large[Side::Upper as usize] && !bounded[Side::Lower as usize] {
        map.insert("minimum".to_owned(), Value::from(-MOST));
    }
}

/// Digits after the point of a number written without an exponent.
fn decimals(float: f64) -> usize {
    let text = format!("{float}");
    text.split_once('.')
        .map_or(0, |(_, decimals)| decimals.len())
}

/// An integer of a constant that its float is not.
fn inexact(value: &Value) -> Option<&Value> {
    match value {
        Value::Number(_) => {
            let lost = |side: Side| side.float(value, false) != value.as_f64();
            (lost(Side::Lower) || lost(Side::Upper)).then_some(value)
        }
        Value::Array(items) => items.iter().find_map(inexact),
        Value::Object(map) => map.values().find_map(inexact),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fitted(schema: Value) -> Value {
        let Value::Object(mut map) = schema else {
            panic!("no object")
        };
        check(&map, "#").unwrap();
        fit(&mut map);
        map.into()
    }

    #[test]
    fn bounds_are_never_wider_than_they_were() {
        for (schema, due) in [
            (json!({"minimum": 5}), json!({"minimum": 5})),
            (json!({"maximum": 0.1}), json!({"maximum": 0.1})),
            // 2⁵³ + 1 lies between two floats.
            (
                json!({"minimum": 9_007_199_254_740_993_i64}),
                json!({"minimum": 9_007_199_254_740_994.0}),
            ),
            (
                json!({"maximum": 9_007_199_254_740_993_i64}),
                json!({"maximum": 9_007_199_254_740_992.0}),
            ),
            (
                json!({"exclusiveMinimum": 9_007_199_254_740_992_i64}),
                json!({"exclusiveMinimum": 9_007_199_254_740_994.0}),
            ),
            (json!({"maximum": u64::MAX}), json!({"maximum": MOST})),
            (json!({"minimum": i64::MIN}), json!({"minimum": -MOST})),
            (
                json!({"minimum": -1e308, "maximum": 1e308}),
                json!({"minimum": -MOST, "maximum": MOST}),
            ),
            (
                json!({"minimum": 1e18}),
                json!({"minimum": 1e18, "maximum": MOST}),
            ),
            (
                json!({"maximum": -2e18, "exclusiveMaximum": true}),
                json!({"maximum": -2e18, "exclusiveMaximum": true, "minimum": -MOST}),
            ),
        ] {
            assert_eq!(fitted(schema.clone()), due, "{schema}");
        }
    }
}
