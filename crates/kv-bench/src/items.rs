//! The items every engine gets: the same in each run, in an order of the user's choice.
//!
//! A key has 16 bytes. In sequential order item `n` has the key `n`, big endian. In random order its key is `n` sent through
//! a mixing function that maps no two numbers to one, so keys are scattered evenly and still distinct. A value is noise, so
//! that no engine gains by compressing it.

use clap::ValueEnum;
use serde::Serialize;

/// In which order keys are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Each key is above the one before.
    Sequential,
    /// Scattered over the whole range.
    Random,
}

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

/// A key.
pub type Key = [u8; KEY_BYTES];

/// One step of the generator splitmix64 (Steele, Lea, Flood, 2014): a permutation of the 64-bit numbers.
fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// All items of a run.
#[derive(Clone, Copy, Debug)]
pub struct Items {
    /// Order of the keys.
    pub order: Order,
    /// How many there are.
    pub count: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Items {
    /// The key of item `number`.
    pub fn key(&self, number: u64) -> Key {
        let mut key = [0; KEY_BYTES];
        match self.order {
            Order::Sequential => key[8..].copy_from_slice(&number.to_be_bytes()),
            Order::Random => {
                key[..8].copy_from_slice(&mix(number).to_be_bytes());
                key[8..].copy_from_slice(&mix(!number).to_be_bytes());
            }
        }
        key
    }

    /// The value of a key, put into `value`.
    pub fn fill_value(&self, key: &Key, value: &mut Vec<u8>) {
        let (mut high, mut low) = ([0; 8], [0; 8]);
        high.copy_from_slice(&key[..8]);
        low.copy_from_slice(&key[8..]);
        let seed = u64::from_be_bytes(high) ^ u64::from_be_bytes(low).rotate_left(32);
        value.clear();
        for word in 0..self.value_bytes.div_ceil(8) as u64 {
            value.extend_from_slice(&mix(seed ^ mix(word)).to_le_bytes());
        }
        value.truncate(self.value_bytes);
    }

    /// Whether this is the value that was written for the key.
    pub fn is_value_of(&self, key: &[u8], value: &[u8], buffer: &mut Vec<u8>) -> bool {
        let Ok(key) = Key::try_from(key) else {
            return false;
        };
        self.fill_value(&key, buffer);
        buffer == value
    }

    /// Numbers of `count` items to read, scattered, the same in every run.
    pub fn sample(&self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let items = self.count;
        (0..count).map(move |at| mix(at ^ 0x5ca1_ab1e) % items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_distinct_and_values_belong_to_them() {
        for order in [Order::Sequential, Order::Random] {
            let items = Items {
                order,
                count: 5000,
                value_bytes: 100,
            };
            let keys: Vec<Key> = (0..items.count).map(|number| items.key(number)).collect();
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 5000);
            assert_eq!(keys.is_sorted(), order == Order::Sequential);
            let (mut value, mut buffer) = (Vec::new(), Vec::new());
            items.fill_value(&keys[7], &mut value);
            assert_eq!(value.len(), 100);
            assert!(items.is_value_of(&keys[7], &value, &mut buffer));
            assert!(!items.is_value_of(&keys[8], &value, &mut buffer));
        }
    }
}
