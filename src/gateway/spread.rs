//! Hashes of keys that no client chooses: their last bytes, mixed; it resists nobody who does.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`LastBytes`].
pub(crate) type Spread = BuildHasherDefault<LastBytes>;

/// Takes the last eight bytes of a key for its hash: of random ids, of authentication tags, of numbers that the commander gives out.
#[derive(Debug, Default)]
pub(crate) struct LastBytes(u64);

impl Hasher for LastBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 = u64::from_le_bytes(*last);
        } else {
            self.0 = bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn write_usize(&mut self, _: usize) {
        // The length of what follows.
    }

    fn finish(&self) -> u64 {
        // Text is uneven and numbers follow each other; this is what ends MurmurHash3.
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^ (mixed >> 33)
    }
}

/// Which of `shards` a key with this hash belongs to; maps use other bits of it.
pub(crate) fn shard_of(hash: u64, shards: usize) -> usize {
    usize::try_from(hash >> 40).unwrap_or(0) % shards
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, Hash};

    use super::*;

    fn evenness<K: Hash>(keys: impl Iterator<Item = K>) -> (usize, usize) {
        let mut counts = [0_usize; 32];
        for key in keys {
            counts[shard_of(Spread::default().hash_one(key), 32)] += 1;
        }
        (
            counts.into_iter().min().unwrap_or(0),
            counts.into_iter().max().unwrap_or(0),
        )
    }

    #[test]
    fn numbers_in_a_row_and_text_are_spread_evenly() {
        let (least, most) = evenness((0..32_000_u64).map(|number| (1 << 40) + number));
        assert!(least > 800 && most < 1200, "{least} {most}");
        let (least, most) = evenness((0..32_000).map(|number| format!("{number:016x}").into_bytes()));
        assert!(least > 700 && most < 1300, "{least} {most}");
    }
}
