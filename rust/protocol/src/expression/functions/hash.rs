//! Hashes, as Spark computes them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array};
use md5::{Digest, Md5};

use super::signature::{Arguments, Definition, ResultType, Slot};
use crate::error::{Error, Result};
use crate::expression::kernel::{Evaluated, unexpected};
use crate::scalar::Scalar;
use crate::schema::PrimitiveType as P;

/// Spark's seed.
const SEED: u32 = 42;

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "hash",
        least: 1,
        slots: &[Slot::Any],
        repeats: true,
        result_type: ResultType::Fixed(P::Integer),
        run: hash,
    },
    Definition {
        name: "xxhash64",
        least: 1,
        slots: &[Slot::Any],
        repeats: true,
        result_type: ResultType::Fixed(P::Long),
        run: xxhash,
    },
    Definition {
        name: "crc32",
        least: 1,
        slots: &[Slot::Bytes],
        repeats: false,
        result_type: ResultType::Fixed(P::Long),
        run: crc32,
    },
    Definition {
        name: "md5",
        least: 1,
        slots: &[Slot::Bytes],
        repeats: false,
        result_type: ResultType::Fixed(P::String),
        run: md5,
    },
];

fn crc32(arguments: &Arguments<'_>) -> Evaluated {
    let array = arguments.array(0)?;
    let bytes = array.as_binary_opt::<i32>().ok_or_else(|| unexpected(array))?;
    let sum = |row: usize| i64::from(crc32fast::hash(bytes.value(row)));
    Ok(Arc::new(arguments.each::<_, Int64Array>(|row| Ok(Some(sum(row))))?))
}

fn md5(arguments: &Arguments<'_>) -> Evaluated {
    let array = arguments.array(0)?;
    let bytes = array.as_binary_opt::<i32>().ok_or_else(|| unexpected(array))?;
    let hex = |row: usize| Md5::digest(bytes.value(row)).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok(Arc::new(arguments.strings(|row| Ok(hex(row)))?))
}

/// Hashes the values of a row one after the other, each with the hash before as seed; a null does not change the hash.
fn over<H: Copy>(arguments: &Arguments<'_>, seed: H, of: impl Fn(Bits<'_>, H) -> H) -> Result<Vec<H>> {
    let mut hashes = vec![seed; arguments.rows];
    for array in &arguments.arrays {
        for (row, hash) in hashes.iter_mut().enumerate() {
            if array.is_valid(row) && array.data_type() != &arrow_schema::DataType::Null {
                *hash = hashed(array, row, *hash, &of)?;
            }
        }
    }
    Ok(hashes)
}

/// The bits of a value that are hashed.
enum Bits<'a> {
    Int(i32),
    Long(i64),
    Bytes(&'a [u8]),
}

fn hashed<H>(array: &ArrayRef, row: usize, seed: H, of: &impl Fn(Bits<'_>, H) -> H) -> Result<H> {
    Ok(match Scalar::from_array(array, row)? {
        Scalar::Boolean(v) => of(Bits::Int(v.into()), seed),
        Scalar::Byte(v) => of(Bits::Int(v.into()), seed),
        Scalar::Short(v) => of(Bits::Int(v.into()), seed),
        Scalar::Integer(v) | Scalar::Date(v) => of(Bits::Int(v), seed),
        Scalar::Long(v) | Scalar::Timestamp(v) | Scalar::TimestampNtz(v) => of(Bits::Long(v), seed),
        Scalar::Float(v) => {
            let v = if v.is_nan() { f32::NAN } else { v + 0.0 };
            of(Bits::Int(v.to_bits().cast_signed()), seed)
        }
        Scalar::Double(v) => {
            let v = if v.is_nan() { f64::NAN } else { v + 0.0 };
            of(Bits::Long(v.to_bits().cast_signed()), seed)
        }
        Scalar::Decimal { value, precision: ..=18, .. } => of(Bits::Long(value as i64), seed),
        Scalar::Decimal { value, .. } => {
            // The bytes of Java's BigInteger: as few as possible, with the sign.
            let bytes = value.to_be_bytes();
            let sign = if value < 0 { 0xff } else { 0 };
            let needless = |at: &usize| {
                let following = bytes.get(at + 1).copied().unwrap_or_default();
                bytes.get(*at) == Some(&sign) && (following ^ sign) & 0x80 == 0
            };
            let skipped = (0..15).take_while(needless).count();
            of(Bits::Bytes(bytes.get(skipped..).unwrap_or_default()), seed)
        }
        Scalar::String(v) => of(Bits::Bytes(v.as_bytes()), seed),
        Scalar::Binary(v) => of(Bits::Bytes(&v), seed),
        Scalar::Null => return Err(Error::internal("a null is hashed")),
    })
}

fn hash(arguments: &Arguments<'_>) -> Evaluated {
    let hashes = over(arguments, SEED, |bits, seed| match bits {
        Bits::Int(v) => finish(mix(seed, v.cast_unsigned()), 4),
        Bits::Long(v) => {
            let v = v.cast_unsigned();
            finish(mix(mix(seed, v as u32), (v >> 32) as u32), 8)
        }
        Bits::Bytes(bytes) => {
            let (words, rest) = bytes.as_chunks::<4>();
            let whole = words.iter().fold(seed, |h, word| mix(h, u32::from_le_bytes(*word)));
            // Spark takes the bytes at the end one by one, with their signs.
            let all = rest.iter().fold(whole, |h, byte| mix(h, i32::from(byte.cast_signed()).cast_unsigned()));
            finish(all, bytes.len() as u32)
        }
    })?;
    Ok(Arc::new(Int32Array::from_iter_values(hashes.into_iter().map(u32::cast_signed))))
}

fn mix(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

fn finish(hash: u32, length: u32) -> u32 {
    let mut h = hash ^ length;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

const PRIMES: [u64; 5] =
    [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63, 0x27d4_eb2f_1656_67c5];

fn xxhash(arguments: &Arguments<'_>) -> Evaluated {
    let [p1, p2, p3, p4, p5] = PRIMES;
    let hashes = over(arguments, u64::from(SEED), |bits, seed| match bits {
        Bits::Int(v) => {
            let h = seed.wrapping_add(p5).wrapping_add(4) ^ u64::from(v.cast_unsigned()).wrapping_mul(p1);
            avalanche(h.rotate_left(23).wrapping_mul(p2).wrapping_add(p3))
        }
        Bits::Long(v) => {
            let h = seed.wrapping_add(p5).wrapping_add(8) ^ xx_round(0, v.cast_unsigned());
            avalanche(h.rotate_left(27).wrapping_mul(p1).wrapping_add(p4))
        }
        Bits::Bytes(bytes) => xx_bytes(bytes, seed),
    })?;
    Ok(Arc::new(Int64Array::from_iter_values(hashes.into_iter().map(u64::cast_signed))))
}

fn xx_round(sum: u64, word: u64) -> u64 {
    let [p1, p2, ..] = PRIMES;
    sum.wrapping_add(word.wrapping_mul(p2)).rotate_left(31).wrapping_mul(p1)
}

fn avalanche(hash: u64) -> u64 {
    let [_, p2, p3, ..] = PRIMES;
    let mut h = (hash ^ (hash >> 33)).wrapping_mul(p2);
    h = (h ^ (h >> 29)).wrapping_mul(p3);
    h ^ (h >> 32)
}

fn xx_bytes(bytes: &[u8], seed: u64) -> u64 {
    let [p1, p2, p3, p4, p5] = PRIMES;
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut h = if stripes.is_empty() {
        seed.wrapping_add(p5)
    } else {
        let mut sums = [seed.wrapping_add(p1).wrapping_add(p2), seed.wrapping_add(p2), seed, seed.wrapping_sub(p1)];
        for stripe in stripes {
            let (words, _) = stripe.as_chunks::<8>();
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum = xx_round(*sum, u64::from_le_bytes(*word));
            }
        }
        let [a, b, c, d] = sums;
        let joined = a
            .rotate_left(1)
            .wrapping_add(b.rotate_left(7))
            .wrapping_add(c.rotate_left(12))
            .wrapping_add(d.rotate_left(18));
        sums.iter().fold(joined, |h, sum| (h ^ xx_round(0, *sum)).wrapping_mul(p1).wrapping_add(p4))
    };
    h = h.wrapping_add(bytes.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        h = (h ^ xx_round(0, u64::from_le_bytes(*word))).rotate_left(27).wrapping_mul(p1).wrapping_add(p4);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        let word = u64::from(u32::from_le_bytes(*half));
        h = (h ^ word.wrapping_mul(p1)).rotate_left(23).wrapping_mul(p2).wrapping_add(p3);
    }
    for byte in rest {
        h = (h ^ u64::from(*byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
    }
    avalanche(h)
}
