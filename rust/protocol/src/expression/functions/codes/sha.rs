//! The SHA family, of FIPS 180-4: what it computes of bytes.
//!
//! Proved by `tests/data/text/expression_values.txt` and, on random bytes, by `tests/spark/test_functions.py`.

/// Of the cube roots of the first primes what stands after the point. SHA-256 takes the first half of each.
const ROUNDS: [u64; 80] = [
    0x428a_2f98_d728_ae22,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242,
    0x1283_5b01_4570_6fbe,
    0x2431_85be_4ee4_b28c,
    0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f,
    0x80de_b1fe_3b16_96b1,
    0x9bdc_06a7_25c7_1235,
    0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2,
    0xefbe_4786_384f_25e3,
    0x0fc1_9dc6_8b8c_d5b5,
    0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275,
    0x4a74_84aa_6ea6_e483,
    0x5cb0_a9dc_bd41_fbd4,
    0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab,
    0xa831_c66d_2db4_3210,
    0xb003_27c8_98fb_213f,
    0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2,
    0xd5a7_9147_930a_a725,
    0x06ca_6351_e003_826f,
    0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc,
    0x2e1b_2138_5c26_c926,
    0x4d2c_6dfc_5ac4_2aed,
    0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de,
    0x766a_0abb_3c77_b2a8,
    0x81c2_c92e_47ed_aee6,
    0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364,
    0xa81a_664b_bc42_3001,
    0xc24b_8b70_d0f8_9791,
    0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218,
    0xd699_0624_5565_a910,
    0xf40e_3585_5771_202a,
    0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8,
    0x1e37_6c08_5141_ab53,
    0x2748_774c_df8e_eb99,
    0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63,
    0x4ed8_aa4a_e341_8acb,
    0x5b9c_ca4f_7763_e373,
    0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc,
    0x78a5_636f_4317_2f60,
    0x84c8_7814_a1f0_ab72,
    0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28,
    0xa450_6ceb_de82_bde9,
    0xbef9_a3f7_b2c6_7915,
    0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c,
    0xd186_b8c7_21c0_c207,
    0xeada_7dd6_cde0_eb1e,
    0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba,
    0x0a63_7dc5_a2c8_98a6,
    0x113f_9804_bef9_0dae,
    0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84,
    0x32ca_ab7b_40c7_2493,
    0x3c9e_be0a_15c9_bebc,
    0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6,
    0x597f_299c_fc65_7e2a,
    0x5fcb_6fab_3ad6_faec,
    0x6c44_198c_4a47_5817,
];
/// The same of the square roots of the first eight primes. SHA-256 takes the first half of each.
const START: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];
/// The same of the eight primes after them. SHA-224 takes the second half of each.
const START_SHORT: [u64; 8] = [
    0xcbbb_9d5d_c105_9ed8,
    0x629a_292a_367c_d507,
    0x9159_015a_3070_dd17,
    0x152f_ecd8_f70e_5939,
    0x6733_2667_ffc0_0b31,
    0x8eb4_4a87_6858_1511,
    0xdb0c_2e0d_64f9_8fa7,
    0x47b5_481d_befa_4fa4,
];

/// Bytes as blocks: a one after them, zeros, and at the end their number of bits.
fn padded(bytes: &[u8], block: usize) -> Vec<u8> {
    let length = block / 8;
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    let zeros = (block - (padded.len() + length) % block) % block + length - 8;
    padded.extend(std::iter::repeat_n(0, zeros));
    padded.extend((bytes.len() as u64).wrapping_mul(8).to_be_bytes());
    padded
}

macro_rules! sha2 {
    ($name:ident, $word:ty, $rounds:literal, $shift:literal, $sums:expr, $steps:expr) => {
        fn $name(bytes: &[u8], mut state: [$word; 8]) -> Vec<u8> {
            const WORD: usize = size_of::<$word>();
            let turned = |v: $word, [a, b, c]: [u32; 3]| v.rotate_right(a) ^ v.rotate_right(b) ^ v.rotate_right(c);
            let moved = |v: $word, [a, b, c]: [u32; 3]| v.rotate_right(a) ^ v.rotate_right(b) ^ (v >> c);
            let ([sum_of_a, sum_of_e], [early, late]) = ($sums, $steps);
            for block in padded(bytes, 16 * WORD).chunks_exact(16 * WORD) {
                let mut words: [$word; $rounds] = [0; $rounds];
                for (word, bytes) in words.iter_mut().zip(block.as_chunks::<WORD>().0) {
                    *word = <$word>::from_be_bytes(*bytes);
                }
                for at in 16..$rounds {
                    let (old, new) = (moved(words[at - 15], early), moved(words[at - 2], late));
                    words[at] = words[at - 16].wrapping_add(old).wrapping_add(words[at - 7]).wrapping_add(new);
                }
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
                for (word, constant) in words.iter().zip(ROUNDS) {
                    let chosen = (e & f) ^ (!e & g);
                    let most = (a & b) ^ (a & c) ^ (b & c);
                    let constant = (constant >> $shift) as $word;
                    let one = h
                        .wrapping_add(turned(e, sum_of_e))
                        .wrapping_add(chosen)
                        .wrapping_add(constant)
                        .wrapping_add(*word);
                    let two = turned(a, sum_of_a).wrapping_add(most);
                    (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(one), c, b, a, one.wrapping_add(two));
                }
                for (sum, value) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                    *sum = sum.wrapping_add(value);
                }
            }
            state.iter().flat_map(|word| word.to_be_bytes()).collect()
        }
    };
}

sha2!(words_of_32, u32, 64, 32, [[2, 13, 22], [6, 11, 25]], [[7, 18, 3], [17, 19, 10]]);
sha2!(words_of_64, u64, 80, 0, [[28, 34, 39], [14, 18, 41]], [[1, 8, 7], [19, 61, 6]]);

/// SHA-2 of so many bits, if there is one.
pub(super) fn sha2(bytes: &[u8], bits: i32) -> Option<Vec<u8>> {
    let mut hash = match bits {
        224 => words_of_32(bytes, START_SHORT.map(|word| word as u32)),
        256 => words_of_32(bytes, START.map(|word| (word >> 32) as u32)),
        384 => words_of_64(bytes, START_SHORT),
        512 => words_of_64(bytes, START),
        _ => return None,
    };
    hash.truncate(usize::try_from(bits / 8).ok()?);
    Some(hash)
}

/// SHA-1.
pub(super) fn sha1(bytes: &[u8]) -> Vec<u8> {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded(bytes, 64).chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        for at in 16..80 {
            words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (at, word) in words.iter().enumerate() {
            let (mixed, constant) = match at {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc_u32),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
        }
        for (sum, value) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(value);
        }
    }
    state.iter().flat_map(|word| word.to_be_bytes()).collect()
}
