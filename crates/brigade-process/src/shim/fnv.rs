//! FNV-1a: a checksum that is the same in every version. It gives no security.
//!
//! It is here because the shim has no dependencies.

/// Returns the checksum of bytes, or of words for large inputs.
pub fn fnv1a(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, part| (sum ^ part).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the checksum of bytes.
pub fn of_bytes(bytes: &[u8]) -> u64 {
    fnv1a(bytes.iter().map(|byte| u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_the_published_values() {
        for (text, expect) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(of_bytes(text.as_bytes()), expect, "{text}");
        }
    }
}
