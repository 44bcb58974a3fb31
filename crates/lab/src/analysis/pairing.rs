//! Which turn of an arm is compared with which turn of the control.
//!
//! A round runs its arms as A B B A (with three arms A B C C B A), from fresh storage each time. Every turn is paired with
//! the nearest turn of the control in its round, each of which serves an arm once: A B B A gives two pairs, the first A
//! with the first B and the second B with the second A.
//!
//! Why pairs: what changes slowly (temperature, a neighbour on the machine, the device's own cleaning) hits both turns of
//! a pair alike and falls out of their ratio. Why in this order: in the first pair B comes later, in the second A does, so
//! a steady drift falls out of the mean of the two. The order is the ABBA cycle of mass comparisons (OIML R 111-1, annex
//! C.4), which is there to remove linear drift. Why each pair counts as an observation of its own, rather than the mean of
//! a round: a drift makes the two pairs of a round differ in opposite directions, which widens the interval and never
//! narrows it, and turns from fresh storage share nothing else but the round's conditions, which both arms have.
//!
//! A round that was interrupted gives the pairs it has. If it is A B, the drift of that one pair does not fall out; it is
//! one of many pairs, and the report says that the run was interrupted.

use super::matrix::{Cell, Column};

/// What a figure's pairs gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs {
    /// Logarithm of arm over control for each pair with two positive values, or 0 where both are zero.
    pub log_ratios: Vec<f64>,
    /// Pairs without a ratio.
    pub left_out: u32,
    /// Pairs in which both values were zero; they are among `log_ratios`.
    pub both_zero: u32,
    /// Pairs left out because just one value was zero or below.
    pub one_zero: u32,
}

/// Pairs the cells of an arm with the control's.
pub(super) fn pair(control: &Column, arm: &Column) -> Pairs {
    let mut pairs = Pairs::default();
    for (control, arm) in partners(control, arm) {
        match (usable(control), usable(arm)) {
            (Some(control), Some(arm)) if control > 0.0 && arm > 0.0 => {
                pairs.log_ratios.push((arm / control).ln())
            }
            (Some(0.0), Some(0.0)) => {
                pairs.log_ratios.push(0.0);
                pairs.both_zero += 1;
            }
            (Some(_), Some(_)) => {
                pairs.one_zero += 1;
                pairs.left_out += 1;
            }
            _ => pairs.left_out += 1,
        }
    }
    pairs
}

fn usable(cell: &Cell) -> Option<f64> {
    cell.value.filter(|value| value.is_finite())
}

/// Turns of one round that belong together, nearest first; at equal distance the earlier ones.
fn partners<'a>(control: &'a Column, arm: &'a Column) -> Vec<(&'a Cell, &'a Cell)> {
    let mut candidates: Vec<(&Cell, &Cell)> = Vec::new();
    for arm_cell in arm {
        candidates.extend(
            control
                .iter()
                .filter(|cell| cell.round == arm_cell.round)
                .map(|control_cell| (control_cell, arm_cell)),
        );
    }
    candidates.sort_by_key(|(control, arm)| {
        (
            arm.round,
            control.position.abs_diff(arm.position),
            arm.position,
            control.position,
        )
    });
    let mut taken: Vec<(&Cell, &Cell)> = Vec::new();
    for (control, arm) in candidates {
        let same = |one: &Cell, other: &Cell| one.round == other.round && one.position == other.position;
        if !taken.iter().any(|(c, a)| same(c, control) || same(a, arm)) {
            taken.push((control, arm));
        }
    }
    taken.sort_by_key(|(_, arm)| (arm.round, arm.position));
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(cells: &[(u32, u32, f64)]) -> Column {
        cells
            .iter()
            .map(|&(round, position, value)| Cell {
                round,
                position,
                value: Some(value),
            })
            .collect()
    }

    fn positions(control: &Column, arm: &Column) -> Vec<(u32, u32, u32)> {
        partners(control, arm)
            .iter()
            .map(|(c, a)| (c.round, c.position, a.position))
            .collect()
    }

    #[test]
    fn a_b_b_a_gives_two_pairs_of_neighbours() {
        let (a, b) = (
            column(&[(0, 0, 1.0), (0, 3, 1.0)]),
            column(&[(0, 1, 1.0), (0, 2, 1.0)]),
        );
        assert_eq!(positions(&a, &b), [(0, 0, 1), (0, 3, 2)]);
        assert_eq!(positions(&b, &a), [(0, 1, 0), (0, 2, 3)]);
    }

    #[test]
    fn every_arm_of_three_gets_a_turn_of_the_control_for_each_of_its_own() {
        // A B C C B A
        let a = column(&[(0, 0, 1.0), (0, 5, 1.0)]);
        assert_eq!(
            positions(&a, &column(&[(0, 1, 1.0), (0, 4, 1.0)])),
            [(0, 0, 1), (0, 5, 4)]
        );
        assert_eq!(
            positions(&a, &column(&[(0, 2, 1.0), (0, 3, 1.0)])),
            [(0, 0, 2), (0, 5, 3)]
        );
    }

    #[test]
    fn turns_of_different_rounds_are_never_paired() {
        let (a, b) = (
            column(&[(0, 0, 1.0), (1, 0, 1.0)]),
            column(&[(1, 1, 1.0), (1, 2, 1.0)]),
        );
        assert_eq!(
            positions(&a, &b),
            [(1, 0, 1)],
            "the second B of an interrupted round has no partner"
        );
    }

    #[test]
    fn a_steady_drift_falls_out_of_the_mean() {
        // Each turn takes 3 % longer than the one before; B needs twice the time.
        let drift = |position: u32| 1.03_f64.powi(position as i32);
        let (a, b) = (
            column(&[(0, 0, drift(0)), (0, 3, drift(3))]),
            column(&[(0, 1, 2.0 * drift(1)), (0, 2, 2.0 * drift(2))]),
        );
        let pairs = pair(&a, &b);
        let mean = pairs.log_ratios.iter().sum::<f64>() / 2.0;
        assert!((mean - 2.0_f64.ln()).abs() < 1e-12, "{mean}");
    }

    #[test]
    fn zeros_and_what_is_no_number_give_no_ratio() {
        let a = column(&[(0, 0, 0.0), (1, 0, 0.0), (2, 0, f64::NAN), (3, 0, 4.0)]);
        let b = column(&[(0, 1, 0.0), (1, 1, 5.0), (2, 1, 5.0), (3, 1, 2.0)]);
        let pairs = pair(&a, &b);
        assert_eq!(pairs.log_ratios, [0.0, 0.5_f64.ln()]);
        assert_eq!((pairs.left_out, pairs.both_zero, pairs.one_zero), (2, 1, 1));
    }
}
