//! The rules of house style that a program can check, so that nobody has to remember them.
//!
//! | rule | why |
//! |---|---|
//! | no source file above 800 lines, a warning above 600 | a file is read in one sitting |
//! | every source file opens with what it is for (`//!`) | a reader knows whether to read on |
//! | no module called `common`, `utils`, `util`, `helpers` or `misc` | such names say nothing and collect everything |
//! | no unfinished code and no test that never runs | what is there works |
//! | a crate uses only the layers below it | a layer can be understood without the ones above |
//! | links between documents lead to files that exist | documents stay true |
//!
//! Leaves out: everything that needs judgement, such as names and whether a comment says why.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

const LINES_AT_MOST: usize = 800;
const LINES_TO_WARN: usize = 600;
const NAMELESS_MODULES: [&str; 5] = ["common", "utils", "util", "helpers", "misc"];

/// The workspace's crates and what each may use in its finished form. A crate that is not listed may use all of them, and
/// none of the listed ones may use it.
const LAYERS: [(&str, &[&str]); 6] = [
    ("packstone-codec", &[]),
    ("packstone-media", &[]),
    ("packstone-pool", &["packstone-codec", "packstone-media"]),
    ("packstone-fs", &["packstone-pool"]),
    ("packstone-fuse", &["packstone-fs"]),
    ("packstone-lab", &[]),
];

/// What was found: errors fail the check, warnings are shown.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
}

/// Checks the workspace in the current directory; true when it keeps all rules.
pub fn run() -> Result<bool> {
    let root = workspace_root()?;
    let mut findings = Findings::default();
    let mut sources = 0;
    for path in files_below(&root, "rs")? {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        check_source(&shown(&path, &root), &text, &mut findings);
        sources += 1;
    }
    let documents = files_below(&root, "md")?;
    for path in &documents {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        check_links(path, &shown(path, &root), &text, &mut findings);
    }
    check_layers(&metadata(&root)?, &mut findings);
    for warning in &findings.warnings {
        println!("warning: {warning}");
    }
    for error in &findings.errors {
        println!("error: {error}");
    }
    println!(
        "{sources} source files and {} documents, {} errors",
        documents.len(),
        findings.errors.len()
    );
    Ok(findings.errors.is_empty())
}

/// The workspace that the current directory belongs to.
pub(crate) fn workspace_root() -> Result<PathBuf> {
    let here = std::env::current_dir()?;
    let root = here
        .ancestors()
        .find(|directory| directory.join("Cargo.lock").is_file() && directory.join("crates").is_dir());
    root.map(Path::to_owned)
        .context("this is not a directory of the workspace")
}

fn shown(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// Files with `extension`, sorted; build output and hidden directories are not entered.
fn files_below(root: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in
            std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?
        {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.to_string_lossy().starts_with('.');
            if entry.file_type()?.is_dir() {
                if !hidden && name != "target" {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn check_source(name: &str, text: &str, findings: &mut Findings) {
    let lines = text.lines().count();
    if lines > LINES_AT_MOST {
        findings
            .errors
            .push(format!("{name}: {lines} lines, more than {LINES_AT_MOST}"));
    } else if lines > LINES_TO_WARN {
        findings
            .warnings
            .push(format!("{name}: {lines} lines; look for the seam"));
    }
    let first = text
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
    if !first.is_some_and(|line| line.starts_with("//!")) {
        findings
            .errors
            .push(format!("{name}: does not open with what it is for (//!)"));
    }
    let path = Path::new(name);
    let file = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let module = match file {
        "mod" => path
            .parent()
            .and_then(|parent| parent.file_name()?.to_str())
            .unwrap_or_default(),
        other => other,
    };
    if NAMELESS_MODULES.contains(&module) {
        findings
            .errors
            .push(format!("{name}: '{module}' says nothing about what is in it"));
    }
    for (index, line) in text.lines().enumerate() {
        if let Some(mark) = unfinished(line) {
            findings.errors.push(format!("{name}:{}: {mark}", index + 1));
        }
    }
}

/// The mark of unfinished work in `line`, if it has one. Written in halves, so that this file does not find itself.
fn unfinished(line: &str) -> Option<&'static str> {
    const MARKS: [&str; 6] = [
        concat!("to", "do!"),
        concat!("unimple", "mented!"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("TO", "DO"),
        concat!("#[ign", "ore"),
    ];
    // A test that other tests start as a process of their own does run.
    let started_by_tests = line.contains(concat!("#[ign", "ore = \"started by "));
    MARKS
        .into_iter()
        .find(|mark| line.contains(mark) && !started_by_tests)
}

fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root);
    serde_json::from_str(&process::run(&mut command)?).context("cannot understand cargo metadata")
}

/// `metadata` is what `cargo metadata --no-deps` says.
fn check_layers(metadata: &Value, findings: &mut Findings) {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    for package in list(metadata, "packages") {
        let Some(name) = package["name"].as_str() else {
            continue;
        };
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            continue;
        };
        for dependency in list(&package, "dependencies") {
            let used = dependency["name"].as_str().unwrap_or_default();
            let finished = dependency["kind"].is_null();
            let fine = if finished {
                allowed.contains(&used)
            } else {
                is_below(used, name)
            };
            if used.starts_with("packstone") && !fine {
                findings.errors.push(format!("{name} must not use {used}"));
            }
        }
    }
}

/// Tests of a layer may reach for any layer below, to build what they need.
fn is_below(used: &str, name: &str) -> bool {
    let rank = |wanted: &str| LAYERS.iter().position(|(layer, _)| *layer == wanted);
    rank(used).zip(rank(name)).is_some_and(|(used, name)| used < name)
}

/// Links of the form `[text](target)` to files must lead somewhere.
fn check_links(path: &Path, name: &str, text: &str, findings: &mut Findings) {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in link_targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && !file.is_empty() && !directory.join(file).exists() {
                findings
                    .errors
                    .push(format!("{name}: the link to {target} leads nowhere"));
            }
        }
    }
}

fn link_targets(line: &str) -> Vec<&str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(str::trim)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_of(name: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_source(name, text, &mut findings);
        findings.errors
    }

    #[test]
    fn good_file_has_no_findings() {
        assert_eq!(
            errors_of("crates/x/src/tree.rs", "//! Trees.\n\nfn f() {}\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let long = format!("//! Long.\n{}", "// line\n".repeat(LINES_AT_MOST));
        assert!(errors_of("a.rs", &long)[0].contains("801 lines"));
        assert!(errors_of("a.rs", "fn f() {}\n")[0].contains("does not open"));
        assert!(errors_of("crates/x/src/utils.rs", "//! X.\n")[0].contains("says nothing"));
        assert!(errors_of("crates/x/src/common/mod.rs", "//! X.\n")[0].contains("says nothing"));
        let unfinished = format!("//! X.\nfn f() {{ {}() }}\n", concat!("to", "do!"));
        assert!(errors_of("a.rs", &unfinished)[0].starts_with("a.rs:2"));
    }

    #[test]
    fn upward_dependency_is_found_and_test_dependency_downward_is_fine() {
        let package = |name: &str, used: &str, kind: Value| serde_json::json!({"packages": [{"name": name, "dependencies": [{"name": used, "kind": kind}]}]});
        let errors = |metadata: Value| {
            let mut findings = Findings::default();
            check_layers(&metadata, &mut findings);
            findings.errors
        };
        assert_eq!(
            errors(package("packstone-pool", "packstone-fs", Value::Null)),
            ["packstone-pool must not use packstone-fs"]
        );
        assert_eq!(
            errors(package("packstone-fuse", "packstone-pool", Value::Null)).len(),
            1
        );
        assert!(errors(package("packstone-fs", "packstone-pool", Value::Null)).is_empty());
        assert!(errors(package("packstone-fs", "packstone-media", "dev".into())).is_empty());
        assert_eq!(
            errors(package("packstone-media", "packstone-pool", "dev".into())).len(),
            1
        );
    }

    #[test]
    fn dead_link_is_found_outside_of_code() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join("there.md"), "x").expect("a file");
        let text = "[a](there.md#part) [b](gone.md) [c](https://packstone.example/) [d](#here)\n```\n[e](no.md)\n```\n";
        let mut findings = Findings::default();
        check_links(
            &directory.path().join("index.md"),
            "index.md",
            text,
            &mut findings,
        );
        assert_eq!(findings.errors, ["index.md: the link to gone.md leads nowhere"]);
    }
}
