//! POSIX ACLs in the kernel's binary form: checking, inheriting, and keeping them in step with the mode. Pure functions.
//!
//! | field | bytes |
//! |---|---|
//! | version | u32 LE, 2 |
//! | entries | each: tag u16 LE, permissions u16 LE (rwx in 3 bits), id u32 LE |
//!
//! Tags in the order in which they must come: owner 01, named users 02, group 04, named groups 08, mask 10 (needed with
//! any named entry), others 20. An ACL that says no more than the mode is not stored. The kernel does the checking of
//! permissions; nothing here decides who may do what.

use crate::error::fail;
use crate::types::{ErrorKind, Result};

/// Name of the attribute with the ACL of an inode.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute with the ACL that a directory gives to what is created in it.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A well-formed ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<AclEntry>,
}

/// What a new inode gets from its directory's default ACL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    pub(crate) mode: u32,
    /// `None` if the mode says it all.
    pub(crate) access: Option<Vec<u8>>,
}

/// Mode and access ACL of an inode created with `mode` where the directory has the default ACL `default`.
pub(crate) fn inherit(operation: &'static str, default: &[u8], mode: u32) -> Result<Inherited> {
    let Some(mut acl) = Acl::parse(operation, default)? else {
        return Ok(Inherited { mode, access: None });
    };
    let mut granted = mode & !0o777;
    for (tag, shift) in acl.classes() {
        // Both the creator and the directory must grant a permission.
        let entry = acl.entry_mut(tag);
        entry.permissions &= (mode >> shift) as u16 & 7;
        granted |= u32::from(entry.permissions) << shift;
    }
    let access = (!acl.is_minimal()).then(|| acl.encode());
    Ok(Inherited {
        mode: granted,
        access,
    })
}

impl Acl {
    /// `None` for an ACL without entries, which means that there is none.
    pub(crate) fn parse(operation: &'static str, value: &[u8]) -> Result<Option<Acl>> {
        let invalid = |why: &str| {
            fail(
                ErrorKind::InvalidInput,
                operation,
                format!("malformed ACL: {why}"),
            )
        };
        let Some((version, rest)) = value.split_first_chunk::<4>() else {
            return invalid("too short");
        };
        if u32::from_le_bytes(*version) != VERSION {
            return fail(ErrorKind::Unsupported, operation, "unknown version of an ACL");
        }
        if rest.len() % ENTRY_BYTES != 0 {
            return invalid("cut off in an entry");
        }
        let entries: Vec<AclEntry> = rest
            .chunks_exact(ENTRY_BYTES)
            .map(|bytes| AclEntry {
                tag: u16::from_le_bytes([bytes[0], bytes[1]]),
                permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
                id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            })
            .collect();
        if entries.is_empty() {
            return Ok(None);
        }
        if !entries.is_sorted_by_key(|entry| entry.tag) {
            return invalid("entries out of order");
        }
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let known = [OWNER, USER, GROUP, NAMED_GROUP, MASK, OTHERS];
        if entries
            .iter()
            .any(|entry| !known.contains(&entry.tag) || entry.permissions > 7)
        {
            return invalid("unknown tag or permission");
        }
        if [OWNER, GROUP, OTHERS].into_iter().any(|tag| count(tag) != 1) || count(MASK) > 1 {
            return invalid("owner, group and others are needed once");
        }
        if count(USER) + count(NAMED_GROUP) > 0 && count(MASK) == 0 {
            return invalid("named entries need a mask");
        }
        Ok(Some(Acl { entries }))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            out.extend(entry.tag.to_le_bytes());
            out.extend(entry.permissions.to_le_bytes());
            out.extend(entry.id.to_le_bytes());
        }
        out
    }

    /// Whether the mode says the same.
    pub(crate) fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Entries that mirror the mode, with their place in it: the mask stands for the group where there is one.
    fn classes(&self) -> [(u16, u32); 3] {
        let masked = self.entries.iter().any(|entry| entry.tag == MASK);
        [(OWNER, 6), (if masked { MASK } else { GROUP }, 3), (OTHERS, 0)]
    }

    fn entry_mut(&mut self, tag: u16) -> &mut AclEntry {
        let found = self.entries.iter_mut().find(|entry| entry.tag == tag);
        found.unwrap_or_else(|| panic!("a parsed ACL has an entry for each class, tag {tag:#x} is missing"))
    }

    /// `mode` with the permission bits that the ACL gives.
    pub(crate) fn mode(&self, mode: u32) -> u32 {
        let classes = self.classes();
        let bits = self.entries.iter().filter_map(|entry| {
            let class = classes.iter().find(|(tag, _)| *tag == entry.tag);
            class.map(|(_, shift)| u32::from(entry.permissions) << shift)
        });
        mode & !0o777 | bits.sum::<u32>()
    }

    /// Takes over the permission bits of `mode`, as chmod does.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        for (tag, shift) in self.classes() {
            self.entry_mut(tag).permissions = (mode >> shift) as u16 & 7;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entries = entries
            .iter()
            .map(|&(tag, permissions, id)| AclEntry { tag, permissions, id })
            .collect();
        Acl { entries }.encode()
    }

    const NOBODY: u32 = u32::MAX;

    fn extended() -> Vec<u8> {
        acl(&[
            (OWNER, 7, NOBODY),
            (USER, 6, 1000),
            (GROUP, 5, NOBODY),
            (MASK, 6, NOBODY),
            (OTHERS, 4, NOBODY),
        ])
    }

    #[test]
    fn parses_what_it_encodes() {
        let parsed = Acl::parse("test", &extended()).unwrap().unwrap();
        assert_eq!(parsed.encode(), extended());
        assert_eq!(parsed.mode(0o4000), 0o4764, "the mask stands for the group");
        assert!(Acl::parse("test", &VERSION.to_le_bytes()).unwrap().is_none());
    }

    #[test]
    fn malformed_ones_fail() {
        let good = extended();
        for length in 0..good.len() {
            if length != 4 {
                assert!(Acl::parse("test", &good[..length]).is_err(), "cut to {length}");
            }
        }
        let bad: [&[(u16, u16, u32)]; 5] = [
            &[(GROUP, 5, NOBODY), (OWNER, 7, NOBODY), (OTHERS, 4, NOBODY)],
            &[
                (OWNER, 7, NOBODY),
                (USER, 6, 1),
                (GROUP, 5, NOBODY),
                (OTHERS, 4, NOBODY),
            ],
            &[(OWNER, 8, NOBODY), (GROUP, 5, NOBODY), (OTHERS, 4, NOBODY)],
            &[
                (OWNER, 7, NOBODY),
                (OWNER, 7, NOBODY),
                (GROUP, 5, NOBODY),
                (OTHERS, 4, NOBODY),
            ],
            &[
                (OWNER, 7, NOBODY),
                (3, 7, NOBODY),
                (GROUP, 5, NOBODY),
                (OTHERS, 4, NOBODY),
            ],
        ];
        for entries in bad {
            assert!(Acl::parse("test", &acl(entries)).is_err(), "{entries:?}");
        }
    }

    #[test]
    fn inheriting_grants_what_both_grant() {
        let inherited = inherit("test", &extended(), 0o640).unwrap();
        assert_eq!(inherited.mode, 0o640);
        let access = Acl::parse("test", &inherited.access.unwrap()).unwrap().unwrap();
        assert_eq!(access.mode(0), 0o640);
        assert!(access.entries.contains(&AclEntry {
            tag: USER,
            permissions: 6,
            id: 1000
        }));
        let minimal = acl(&[(OWNER, 7, NOBODY), (GROUP, 5, NOBODY), (OTHERS, 0, NOBODY)]);
        assert_eq!(
            inherit("test", &minimal, 0o4666).unwrap(),
            Inherited {
                mode: 0o4640,
                access: None
            }
        );
    }

    #[test]
    fn chmod_moves_the_mask() {
        let mut parsed = Acl::parse("test", &extended()).unwrap().unwrap();
        parsed.set_mode(0o701);
        assert_eq!(parsed.mode(0), 0o701);
        let group = parsed.entries.iter().find(|entry| entry.tag == GROUP).unwrap();
        assert_eq!(group.permissions, 5, "the group's own entry stays");
    }
}
