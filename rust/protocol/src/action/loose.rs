//! JSON scalars, read as leniently as other readers do: numbers and booleans in quotes, numbers with a fraction,
//! unquoted strings.
//!
//! The rules are those of delta-spark's JSON library: a number in a string is a number, an empty
//! string is null, a fraction is cut off, and an integer is true as a boolean unless it is 0. A string takes any scalar
//! as written. Values beyond the type are errors, never other values.
//!
//! PROTOCOL.md: "Actions".

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An integer, or null.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    deserializer.deserialize_any(Whole)
}

/// An integer.
pub(super) fn needed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    whole(deserializer)?.ok_or_else(|| D::Error::custom("a number is missing"))
}

/// An integer of 32 bits, or null.
pub(super) fn whole32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    let number = whole(deserializer)?.map(i32::try_from).transpose();
    number.map_err(|_| D::Error::custom("the number is too large"))
}

/// An integer of 32 bits.
pub(super) fn needed32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    whole32(deserializer)?.ok_or_else(|| D::Error::custom("a number is missing"))
}

/// A boolean, or null.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    deserializer.deserialize_any(Flag)
}

/// A boolean, where null is false.
pub(super) fn is_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    flag(deserializer).map(Option::unwrap_or_default)
}

/// Text.
pub(super) fn string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Text::deserialize(deserializer).map(|text| text.0.into_owned())
}

/// Text, or null.
pub(super) fn string_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Text<'de>>::deserialize(deserializer)?.map(|text| text.0.into_owned()))
}

/// Text, where null is empty.
pub(super) fn string_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    string_or_null(deserializer).map(Option::unwrap_or_default)
}

/// Strings, where null is none; nulls among them are left out.
pub(super) fn strings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    strings_or_null(deserializer).map(Option::unwrap_or_default)
}

/// Strings, or null; nulls among them are left out.
pub(super) fn strings_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let texts = Option::<Vec<Option<Text<'de>>>>::deserialize(deserializer)?;
    Ok(texts.map(|texts| texts.into_iter().flatten().map(|text| text.0.into_owned()).collect()))
}

/// A string, borrowed if it can be.
pub(super) fn borrowed<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, str>, D::Error> {
    Text::deserialize(deserializer).map(|text| text.0)
}

/// A string, borrowed if it can be, or null.
pub(super) fn borrowed_or_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'a, str>>, D::Error> {
    Ok(Option::<Text<'de>>::deserialize(deserializer)?.map(|text| text.0))
}

/// An integer from a parsed JSON value.
pub(super) fn whole_in(value: &Value) -> Option<i64> {
    whole(value).ok().flatten()
}

/// A number cut to an integer.
fn cut(value: f64) -> Option<i64> {
    /// The first double beyond the type.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    // The conversion cuts off the fraction and no more, as was just made sure. The least integer itself is not a double here:
    // one below it would be rounded to it.
    (-BEYOND < value && value < BEYOND).then_some(value as i64)
}

struct Whole;

impl Visitor<'_> for Whole {
    type Value = Option<i64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_unit<E>(self) -> Result<Option<i64>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Option<i64>, E> {
        Ok(Some(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<i64>, E> {
        i64::try_from(value).map(Some).map_err(|_| E::custom("the number is too large"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<i64>, E> {
        cut(value).map(Some).ok_or_else(|| E::custom("the number is too large"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<i64>, E> {
        match text.trim() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| E::custom(format!("`{text}` is not a whole number"))),
        }
    }
}

struct Flag;

impl Visitor<'_> for Flag {
    type Value = Option<bool>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false")
    }

    fn visit_unit<E>(self) -> Result<Option<bool>, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Option<bool>, E> {
        Ok(Some(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Option<bool>, E> {
        Ok(Some(value != 0))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Option<bool>, E> {
        Ok(Some(value != 0))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<bool>, E> {
        match text.trim() {
            "" => Ok(None),
            "true" | "True" | "TRUE" => Ok(Some(true)),
            "false" | "False" | "FALSE" => Ok(Some(false)),
            text => Err(E::custom(format!("`{text}` is neither true nor false"))),
        }
    }
}

/// A string, or another scalar as the JSON spells it: `1.0` and `1.00` are different literals.
pub(super) struct Literal<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Literal<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = <&'de RawValue>::deserialize(deserializer)?.get();
        match value.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<Text<'de>>(value).map(|text| Self(text.0)).map_err(D::Error::custom),
            Some(b'{' | b'[') => Err(D::Error::custom("a string was expected")),
            Some(_) | None => Ok(Self(Cow::Borrowed(value))),
        }
    }
}

/// Borrowed if it can be; `Cow` by itself always owns inside a container. Bare numbers and booleans become their text.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyString;
        impl<'de> Visitor<'de> for AnyString {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(value.to_string())))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(value.to_string())))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(value.to_string())))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(Value::from(value).to_string())))
            }
        }
        deserializer.deserialize_any(AnyString)
    }
}

/// The default of a member whose value is null.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A map of strings; numbers and booleans that foreign writers leave unquoted become their text, nulls are left out.
pub(super) fn string_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map = Option::<BTreeMap<String, Value>>::deserialize(deserializer)?.unwrap_or_default();
    let text = |value: Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    };
    Ok(map.into_iter().filter_map(|(key, value)| Some((key, text(value)?))).collect())
}
