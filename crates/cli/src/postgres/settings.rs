//! The settings that differ on Packstone, with the reason beside each, as a file of their own that `postgresql.conf`
//! includes. Everything else stays as `initdb` chose it.

use std::fmt::Write;

/// Name of the file, in the data directory.
pub const FILE_NAME: &str = "packstone.conf";

/// A setting, its value and why.
const SETTINGS: &[(&str, &str, &str)] = &[
    (
        "full_page_writes",
        "off",
        "A page lies in one record, and a record is written whole or not at all, through any crash.",
    ),
    (
        "wal_init_zero",
        "off",
        "Nothing is ever overwritten in place, so filling new WAL files with zeros reserves no room.",
    ),
    (
        "wal_recycle",
        "off",
        "For the same reason a new WAL file costs no more than an old one under a new name.",
    ),
    (
        "wal_compression",
        "off",
        "Packstone compresses the WAL; doing it twice costs time and gains nothing.",
    ),
];

/// The file's text.
pub fn render(port: Option<u16>, socket_directory: Option<&str>) -> String {
    let mut text = String::from(
        "# Settings for a cluster on Packstone, written by 'packstone postgres create'.\n\
         # full_page_writes=off is safe only where a page write is atomic: turn it on before you move this\n\
         # cluster to another file system, or if the dataset's recordsize is ever below 8K.\n",
    );
    for (name, value, why) in SETTINGS {
        let _ = write!(text, "\n# {why}\n{name} = {value}\n");
    }
    if let Some(port) = port {
        let _ = write!(text, "\nport = {port}\n");
    }
    if let Some(directory) = socket_directory {
        let _ = write!(
            text,
            "\n# The usual directory belongs to another user.\nunix_socket_directories = '{}'\n",
            directory.replace('\'', "''")
        );
    }
    text
}

/// What is added at the end of `postgresql.conf`, where it wins over what stands before it.
pub fn include_line() -> String {
    format!("\n# Settings for this cluster on Packstone, with the reasons.\ninclude = '{FILE_NAME}'\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_its_reason() {
        let text = render(Some(5433), Some("/tmp"));
        for (name, value, why) in SETTINGS {
            assert!(text.contains(&format!("# {why}\n{name} = {value}\n")), "{name}");
        }
        assert!(text.contains("\nport = 5433\n") && text.contains("unix_socket_directories = '/tmp'"));
        assert!(!render(None, None).contains("port"));
    }
}
