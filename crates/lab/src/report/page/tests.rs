//! The page as a whole: well formed, complete, and in need of nothing from outside.

use super::*;
use crate::analysis::analyse;
use crate::figure::FlameGraph;
use crate::sample::{information, run};

/// Elements without an end.
const VOID: [&str; 3] = ["meta", "br", "hr"];

fn written(directory: &Path, information: &RunInformation, turns: &[TurnResult]) -> String {
    let mut out = Vec::new();
    write_html(
        &mut out,
        directory,
        information,
        turns,
        &analyse(information, turns),
    )
    .expect("memory");
    String::from_utf8(out).expect("text")
}

/// Every tag of the page with its attributes, after checking that each one opened is closed where it should be.
fn well_formed(page: &str) -> Vec<&str> {
    let (mut tags, mut open): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "a bare > in {}", &rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        let name = tag.split(' ').next().unwrap_or_default();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "the end of another element");
            continue;
        }
        tags.push(tag);
        if name == "style" {
            rest = &rest[rest.find("</style>").expect("the style sheet ends")..];
        }
        if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    tags
}

#[test]
fn the_page_is_well_formed_and_has_everything() {
    let (information, turns) = run(
        &[("ext4", 1.0), ("packstone", 1.4), ("btrfs <zstd> & \"co\"", 0.7)],
        3,
    );
    let page = written(Path::new("/nonexistent"), &information, &turns);
    let tags = well_formed(&page);
    for text in [
        "What came out",
        "Ratios to the control",
        "Every turn",
        "Latencies",
        "Over time",
        "Bytes",
        "What was run",
        "Notes",
        "How to read this",
        "packstone against ext4",
        ": better",
        ": worse",
        "btrfs &lt;zstd&gt; &amp; &quot;co&quot;",
        "A &lt;second&gt; paragraph &amp; an &quot;end&quot;.",
        "scale = 50",
        "Linux 6.12.0",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let count = |name: &str| {
        tags.iter()
            .filter(|tag| tag.split(' ').next() == Some(name))
            .count()
    };
    assert!(count("svg") >= 15, "{}", count("svg"));
    assert_eq!(count("figure"), count("figcaption"));
    let dots = tags
        .iter()
        .filter(|tag| tag.starts_with("circle class=\"dot"))
        .count();
    let values: usize = turns
        .iter()
        .filter(|turn| turn.round.is_some())
        .map(|turn| turn.figures.len())
        .sum();
    assert_eq!(dots, values, "every turn of every figure");
    for tag in tags.iter().filter(|tag| tag.starts_with("svg ")) {
        assert!(tag.contains("role=\"img\" aria-label=\""), "{tag}");
    }
    assert!(
        !page.contains("NaN") && !page.contains("inf\""),
        "no place on a plot is no number"
    );
}

#[test]
fn every_plot_has_its_numbers_beside_it() {
    let (information, turns) = run(&[("ext4", 1.0), ("packstone", 1.4)], 3);
    let page = written(Path::new("/nonexistent"), &information, &turns);
    for figure in page.split("<figure>").skip(1) {
        let figure = &figure[..figure.find("</figure>").expect("an end")];
        assert!(
            figure.contains("<svg") && figure.contains("<table"),
            "{}",
            &figure[..figure.len().min(200)]
        );
    }
}

#[test]
fn nothing_is_fetched_from_anywhere() {
    let (information, turns) = run(&[("ext4", 1.0), ("packstone", 1.4)], 3);
    let page = written(Path::new("/nonexistent"), &information, &turns);
    for tag in well_formed(&page) {
        let name = tag.split(' ').next().unwrap_or_default();
        assert!(
            !["script", "link", "img", "object", "embed", "iframe", "base"].contains(&name),
            "<{tag}>"
        );
        assert!(
            !tag.contains(" href=") && !tag.contains(" src=") && !tag.contains(" on"),
            "<{tag}>"
        );
    }
    assert!(
        !page.contains("url(")
            && !page.contains("@import")
            && !page.contains("http:")
            && !page.contains("https:")
    );
    assert!(
        page.contains("default-src &apos;none&apos;") || page.contains("default-src 'none'"),
        "the policy"
    );
}

#[test]
fn runs_with_little_in_them_make_a_page_too() {
    for (information, turns) in [
        (information(&["a", "b"], 3), Vec::new()),
        run(&[("only", 1.0)], 1),
        (
            information(&["a", "b"], 3),
            run(&[("a", 1.0), ("b", 2.0)], 1).1[..3].to_vec(),
        ),
    ] {
        let page = written(Path::new("/nonexistent"), &information, &turns);
        well_formed(&page);
        assert!(page.contains("How to read this") && !page.contains("NaN"));
    }
    let (information, mut turns) = run(&[("a", 1.0), ("b", 2.0)], 3);
    for turn in &mut turns {
        turn.figures.iter_mut().for_each(|figure| figure.value = f64::NAN);
        turn.series
            .iter_mut()
            .flat_map(|series| &mut series.points)
            .for_each(|point| point.1 = f64::INFINITY);
        turn.distributions
            .iter_mut()
            .flat_map(|all| &mut all.points)
            .for_each(|point| point.0 = 0.0);
    }
    let page = written(Path::new("/nonexistent"), &information, &turns);
    well_formed(&page);
    assert!(!page.contains("NaN") && !page.contains("inf\""));
}

#[test]
fn flame_graphs_are_shut_in_frames_and_only_files_of_the_run_are_read() {
    let directory = tempfile::tempdir().expect("scratch");
    let (information, mut turns) = run(&[("ext4", 1.0), ("packstone", 1.4)], 1);
    std::fs::write(
        directory.path().join("server.svg"),
        "<?xml version=\"1.0\"?>\n<svg><script>\"x\"</script></svg>",
    )
    .expect("scratch");
    let graph = |file: &str, process: &str| FlameGraph {
        phase: "8 clients".to_owned(),
        process: process.to_owned(),
        file: file.to_owned(),
    };
    turns[2].flame_graphs = vec![
        graph("server.svg", "server"),
        graph("../etc/passwd", "daemon"),
        graph("gone.svg", "kernel"),
    ];
    let page = written(directory.path(), &information, &turns);
    well_formed(&page);
    assert!(
        page.contains("sandbox=\"allow-scripts allow-modals\"")
            && page.contains("/style&gt;&lt;svg&gt;&lt;script&gt;&quot;x&quot;")
    );
    assert!(page.contains("../etc/passwd is not a file of this run"));
    assert!(page.contains("gone.svg cannot be read"));
    assert_eq!(page.matches("<iframe").count(), 1);
}

/// `PACKSTONE_SAMPLE_REPORT=PATH cargo test -p packstone-lab sample_report` writes a page to look at. Flame graphs beside
/// it, `server.svg` and `daemon.svg`, are shown where they exist.
#[test]
fn sample_report() {
    let Some(path) = std::env::var_os("PACKSTONE_SAMPLE_REPORT").map(std::path::PathBuf::from) else {
        return;
    };
    let (information, mut turns) = run(&[("ext4", 1.0), ("packstone", 1.4), ("btrfs zstd:1", 0.55)], 4);
    let directory = path.parent().expect("a file has a directory");
    for process in ["server", "daemon"] {
        let file = format!("{process}.svg");
        if directory.join(&file).is_file() {
            turns[3].flame_graphs.push(FlameGraph {
                phase: "8 clients".to_owned(),
                process: process.to_owned(),
                file,
            });
        }
    }
    std::fs::write(&path, written(directory, &information, &turns)).expect("the path can be written");
}
