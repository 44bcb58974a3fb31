//! The analysis as a whole, on runs made by hand.

use super::*;
use crate::sample::{information, round_order, run, turn, with};

fn throughput(arm: &str, round: Option<u32>, position: u32, value: f64) -> TurnResult {
    with(
        turn(arm, round, position),
        "throughput",
        Unit::PerSecond,
        Better::Higher,
        value,
    )
}

fn rounds<Values: AsRef<[f64]>>(arms: &[&str], values: &[Values]) -> Vec<TurnResult> {
    let mut turns = Vec::new();
    for (round, values) in values.iter().enumerate() {
        for (position, (arm, value)) in round_order(arms).iter().zip(values.as_ref()).enumerate() {
            turns.push(throughput(arm, Some(round as u32), position as u32, *value));
        }
    }
    turns
}

fn comparison(analysis: &Analysis, arm: &str) -> Comparison {
    let of_arm = analysis.figures[0]
        .arms
        .iter()
        .find(|figure| figure.arm == arm)
        .expect("arm");
    of_arm.comparison.clone().expect("not the control")
}

#[test]
fn medians_ratios_and_noise_floor_are_what_a_person_computes() {
    let mut turns = vec![throughput("a", None, 0, 100.0), throughput("a", None, 1, 104.0)];
    turns.extend(rounds(
        &["a", "b"],
        &[
            [100.0, 200.0, 210.0, 102.0],
            [98.0, 201.0, 199.0, 101.0],
            [99.0, 202.0, 203.0, 100.0],
        ],
    ));
    let analysis = analyse(&information(&["a", "b"], 3), &turns);
    let figure = &analysis.figures[0];
    assert_eq!((analysis.rounds_complete, analysis.noise_pairs), (3, 1));
    assert!((figure.noise_floor_log.expect("A/A pair") - 1.04_f64.ln()).abs() < 1e-12);
    assert_eq!(
        (figure.arms[0].median, figure.arms[1].median),
        (Some(100.0), Some(201.5)),
        "without the A/A pair"
    );
    assert_eq!(
        (figure.arms[1].least, figure.arms[1].greatest),
        (Some(199.0), Some(210.0))
    );
    let comparison = comparison(&analysis, "b");
    let product: f64 = [
        200.0 / 100.0,
        210.0 / 102.0,
        201.0 / 98.0,
        199.0 / 101.0,
        202.0 / 99.0,
        203.0 / 100.0,
    ]
    .iter()
    .product();
    assert!((comparison.ratio.expect("six pairs") - product.powf(1.0 / 6.0)).abs() < 1e-9);
    assert_eq!(
        (comparison.pairs, comparison.few_pairs, comparison.verdict),
        (6, false, Verdict::Better)
    );
    assert!(analysis.notes.is_empty(), "{:?}", analysis.notes);
    assert_eq!(
        analysis,
        analyse(&information(&["a", "b"], 3), &turns),
        "the same run, the same result"
    );
}

#[test]
fn an_interrupted_run_is_analysed_as_far_as_it_went() {
    let turns = rounds(&["a", "b"], &[vec![100.0, 50.0, 51.0, 101.0], vec![100.0, 50.0]]);
    let analysis = analyse(&information(&["a", "b"], 5), &turns);
    assert_eq!(analysis.rounds_complete, 1);
    assert!(
        analysis
            .notes
            .contains(&"the run was interrupted: 1 of 5 rounds are complete".to_owned())
    );
    assert!(analysis.notes.iter().any(|note| note.contains("no A/A pair")));
    let comparison = comparison(&analysis, "b");
    assert_eq!(
        (comparison.pairs, comparison.few_pairs, comparison.verdict),
        (3, true, Verdict::Worse)
    );
    assert!(
        comparison.words.ends_with("too few rounds to be sure"),
        "{}",
        comparison.words
    );
}

#[test]
fn one_pair_alone_tells_nothing() {
    let analysis = analyse(
        &information(&["a", "b"], 1),
        &rounds(&["a", "b"], &[[100.0, 300.0]]),
    );
    let comparison = comparison(&analysis, "b");
    assert_eq!(
        (comparison.verdict, comparison.interval),
        (Verdict::CannotTell, None)
    );
    assert_eq!(
        comparison.words,
        "cannot tell: one pair only, 3.00 times the control's"
    );
}

#[test]
fn one_arm_alone_is_described_and_not_compared() {
    let analysis = analyse(&information(&["a"], 1), &rounds(&["a"], &[[100.0, 101.0]]));
    assert_eq!(analysis.figures[0].arms.len(), 1);
    assert_eq!(analysis.figures[0].arms[0].comparison, None);
    assert_eq!(analysis.figures[0].arms[0].median, Some(100.5));
    assert!(
        analysis
            .notes
            .contains(&"there is one arm only: nothing is compared".to_owned())
    );
}

#[test]
fn no_turns_at_all_are_no_reason_to_fail() {
    let analysis = analyse(&information(&["a", "b"], 3), &[]);
    assert_eq!((analysis.figures.len(), analysis.rounds_complete), (0, 0));
    assert!(
        analysis.notes.iter().any(|note| note.contains("has no turns")),
        "{:?}",
        analysis.notes
    );
}

#[test]
fn a_figure_that_only_some_turns_have_is_compared_where_it_can_be() {
    let mut turns = rounds(&["a", "b"], &[[10.0, 20.0, 20.0, 10.0]; 3]);
    turns[1].figures.clear();
    turns[4].figures[0].value = f64::NAN;
    let analysis = analyse(&information(&["a", "b"], 3), &turns);
    let comparison = comparison(&analysis, "b");
    assert_eq!((comparison.pairs, comparison.pairs_left_out), (4, 2));
    assert!((comparison.ratio.expect("four pairs") - 2.0).abs() < 1e-12);
    assert_eq!(
        analysis.figures[0].arms[0].turns, 5,
        "what is no number is not counted"
    );
    assert_eq!(analysis.figures[0].arms[0].median, Some(10.0));
}

#[test]
fn zeros_are_said_and_give_no_ratio() {
    let zeros = analyse(&information(&["a", "b"], 1), &rounds(&["a", "b"], &[[0.0; 4]; 3]));
    assert_eq!(comparison(&zeros, "b").words, "zero in both");
    let one_sided = analyse(
        &information(&["a", "b"], 1),
        &rounds(&["a", "b"], &[[5.0, 0.0, 0.0, 5.0]; 3]),
    );
    let comparison = comparison(&one_sided, "b");
    assert_eq!((comparison.verdict, comparison.ratio), (Verdict::NoRatio, None));
    assert_eq!(
        comparison.words,
        "no ratio: one of the two is zero in 6 of 6 pairs"
    );
}

#[test]
fn a_figure_of_one_arm_only_says_whose_it_is() {
    let mut turns = rounds(&["a", "b"], &[[1.0, 2.0, 2.0, 1.0]; 3]);
    for turn in turns.iter_mut().filter(|turn| turn.arm == "a") {
        turn.figures.clear();
    }
    let analysis = analyse(&information(&["a", "b"], 3), &turns);
    assert_eq!(
        comparison(&analysis, "b").words,
        "no ratio: the control has no such figure"
    );
}

#[test]
fn a_turn_that_was_run_again_counts_once_and_the_later_one() {
    let mut turns = rounds(&["a", "b"], &[[10.0, 20.0, 20.0, 10.0]; 3]);
    turns.push(throughput("b", Some(0), 1, 40.0));
    let analysis = analyse(&information(&["a", "b"], 3), &turns);
    assert_eq!(analysis.figures[0].arms[1].greatest, Some(40.0));
    assert_eq!(
        (analysis.figures[0].arms[1].turns, analysis.rounds_complete),
        (6, 3)
    );
    assert_eq!(
        analysis.notes.last().map(String::as_str),
        Some("turns run again, of which the later ones count: 1")
    );
}

#[test]
fn key_figures_are_those_that_readers_look_at_first() {
    let (information, turns) = run(&[("ext4", 1.0), ("packstone", 1.4)], 3);
    let analysis = analyse(&information, &turns);
    let key: Vec<String> = analysis
        .figures
        .iter()
        .filter(|figure| figure.key)
        .map(|figure| format!("{}: {}", figure.phase, figure.name))
        .collect();
    assert_eq!(
        key,
        [
            "load: time",
            "load: device bytes written",
            "8 clients: throughput",
            "8 clients: latency p99",
            "8 clients: device bytes written per transaction",
            "8 clients: CPU seconds of server and daemon per transaction",
        ]
    );
}

#[test]
fn a_phase_of_unknown_figures_shows_all_of_them() {
    let turns: Vec<TurnResult> = (0..2)
        .map(|position| {
            with(
                turn("a", Some(0), position),
                "frobnications",
                Unit::Count,
                Better::Neither,
                1.0,
            )
        })
        .collect();
    assert!(analyse(&information(&["a"], 1), &turns).figures[0].key);
}

#[test]
fn time_is_no_key_figure_beside_throughput_and_probes_never_have_any() {
    let mut turns = rounds(&["a", "b"], &[[1.0, 2.0, 2.0, 1.0]; 3]);
    for turn in &mut turns {
        let seconds = turn.figures[0].value;
        *turn = with(turn.clone(), "time", Unit::Seconds, Better::Lower, seconds);
        turn.figures.push(turn.figures[0].clone());
        turn.figures[2].phase = "probe".to_owned();
    }
    let analysis = analyse(&information(&["a", "b"], 3), &turns);
    let keys: Vec<bool> = analysis.figures.iter().map(|figure| figure.key).collect();
    assert_eq!(keys, [true, false, false]);
}
