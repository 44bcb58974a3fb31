//! Which turns there are, and in what order.
//!
//! A round goes through the arms and back: `A B B A`, with three arms `A B C C B A`. Each arm has two turns in a round whose
//! middle lies at the same time, so that whatever drifts steadily (a disk that fills, a machine that warms up) is the same
//! for all. Before the rounds the control has two turns in a row; how far these two are apart is noise.

use std::fmt;

use crate::experiment::Experiment;
use crate::figure::TurnResult;

/// One turn to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTurn {
    /// Name of the arm.
    pub arm: String,
    /// Number of the round; none in the pair that sets the noise floor.
    pub round: Option<u32>,
    /// Position within the round or the pair.
    pub position: u32,
    /// 0 on the way through the arms, 1 on the way back; 0 in the pair.
    way: u32,
}

impl PlannedTurn {
    /// Whether `result` is this turn's.
    pub fn is(&self, result: &TurnResult) -> bool {
        (self.arm.as_str(), self.round, self.position) == (result.arm.as_str(), result.round, result.position)
    }

    /// Whether flame graphs are made in it, when they are wanted: one turn of every arm, on the same way of the same round,
    /// so that what sampling costs falls on all arms alike.
    pub fn is_profiled(&self) -> bool {
        self.round == Some(0) && self.way == 0
    }

    /// The same for all arms on the same way of one round, and for both turns of the pair: what is compared gets the same
    /// work.
    pub fn seed(&self) -> u64 {
        let round = self.round.map_or(0, |round| u64::from(round) + 1);
        round * 2 + u64::from(self.way)
    }
}

impl fmt::Display for PlannedTurn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.round {
            Some(round) => write!(
                formatter,
                "{} in round {}, place {}",
                self.arm,
                round + 1,
                self.position + 1
            ),
            None => write!(
                formatter,
                "{} of the noise pair, place {}",
                self.arm,
                self.position + 1
            ),
        }
    }
}

/// All turns of an experiment, in order.
pub fn plan(experiment: &Experiment) -> Vec<PlannedTurn> {
    let mut turns = Vec::new();
    if experiment.noise_pair {
        turns.extend((0..2).map(|position| PlannedTurn {
            arm: experiment.control.clone(),
            round: None,
            position,
            way: 0,
        }));
    }
    for round in 0..experiment.rounds {
        let there = experiment.arms.iter().map(|arm| (arm, 0));
        let back = experiment.arms.iter().rev().map(|arm| (arm, 1));
        turns.extend(
            there
                .chain(back)
                .zip(0..)
                .map(|((arm, way), position)| PlannedTurn {
                    arm: arm.name.clone(),
                    round: Some(round),
                    position,
                    way,
                }),
        );
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(more: &str) -> Experiment {
        let text = format!(
            "name = 'x'\ncontrol = 'b'\nrounds = 2\n{more}\n\
             [[arm]]\nname = 'a'\nkind = 'ext4'\n[[arm]]\nname = 'b'\nkind = 'ext4'\n[[arm]]\nname = 'c'\nkind = 'ext4'\n\
             [workload]\nkind = 'command'\n"
        );
        Experiment::parse(&text).expect("an experiment")
    }

    #[test]
    fn noise_pair_of_the_control_then_rounds_there_and_back() {
        let turns = plan(&experiment(""));
        let arms: Vec<&str> = turns.iter().map(|turn| turn.arm.as_str()).collect();
        assert_eq!(arms.concat(), "bbabccbaabccba");
        assert_eq!(turns[1].round, None);
        assert_eq!((turns[2].round, turns[2].position), (Some(0), 0));
        assert_eq!((turns[13].round, turns[13].position), (Some(1), 5));
        assert_eq!(plan(&experiment("noise_pair = false")).len(), 12);
    }

    #[test]
    fn seeds_are_the_same_for_what_is_compared_and_for_nothing_else() {
        let turns = plan(&experiment(""));
        assert_eq!(turns[0].seed(), turns[1].seed());
        assert_eq!(turns[2].seed(), turns[4].seed());
        assert_ne!(turns[2].seed(), turns[5].seed());
        assert_ne!(turns[2].seed(), turns[8].seed());
        let mut seeds: Vec<u64> = turns.iter().map(PlannedTurn::seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 1 + 2 * 2);
    }

    #[test]
    fn one_turn_of_every_arm_is_profiled() {
        let turns = plan(&experiment(""));
        let profiled: Vec<&str> = turns
            .iter()
            .filter(|turn| turn.is_profiled())
            .map(|turn| turn.arm.as_str())
            .collect();
        assert_eq!(profiled, ["a", "b", "c"]);
    }

    #[test]
    fn a_turn_knows_its_result() {
        let turns = plan(&experiment(""));
        let result = TurnResult {
            arm: "b".to_owned(),
            round: Some(1),
            position: 4,
            ..TurnResult::default()
        };
        let found: Vec<usize> = (0..turns.len()).filter(|at| turns[*at].is(&result)).collect();
        assert_eq!(found, [12]);
    }
}
