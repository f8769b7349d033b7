//! FNV-1a: tells contents apart, stays the same in every version, and is no protection.
//!
//! It is here because the shim needs it, and the shim has nothing but its own source.

/// The sum of these parts: bytes, or words where there are many.
pub fn fnv1a(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, part| (sum ^ part).wrapping_mul(0x0100_0000_01b3))
}

/// The sum of bytes.
pub fn of_bytes(bytes: &[u8]) -> u64 {
    fnv1a(bytes.iter().map(|byte| u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_that_were_published_with_it() {
        for (text, expect) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(of_bytes(text.as_bytes()), expect, "{text}");
        }
    }
}
