//! What phases and the whole reached, and how it is told: io500's lines, files and score.

use std::fs;

use serde_json::json;

use super::phases::{Group, PHASES, Phase};
use super::whole::Whole;
use super::{Options, version};
use crate::Rate;
use crate::ranks::Ended;

/// What a phase reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    pub(super) phase: usize,
    pub(super) score: f64,
    pub(super) seconds: f64,
    pub(super) is_valid: bool,
}

impl Whole<'_> {
    pub(super) fn finish(
        &mut self,
        options: &Options,
        scores: &[Score],
    ) -> Result<Vec<Rate>, Ended> {
        let bandwidth = mean_of(scores, Group::Bandwidth);
        let metadata = mean_of(scores, Group::Metadata);
        let total = (bandwidth * metadata).sqrt();
        let valid = if self.is_valid { "" } else { " [INVALID]" };
        self.result += "\n[SCORE]\n";
        self.pair("MD", &format!("{metadata:.6}"));
        self.pair("BW", &format!("{bandwidth:.6}"));
        self.pair("SCORE", &format!("{total:.6}{valid}"));
        self.say(&format!(
            "[SCORE ] Bandwidth {bandwidth:.6} GiB/s : IOPS {metadata:.6} kiops : TOTAL {total:.6}{valid}"
        ));
        let results = self.results.clone();
        let mut files = vec![
            (format!("{results}/result.txt"), self.result.clone()),
            (format!("{results}/result_summary.txt"), self.summary.clone()),
        ];
        if let Some(path) = &options.json {
            let one = |score: &Score| {
                let Phase { name, group, .. } = &PHASES[score.phase];
                json!({"name": name, "score": score.score, "unit": group.unit(),
                       "seconds": score.seconds, "valid": score.is_valid})
            };
            let phases: Vec<_> = scores.iter().map(one).collect();
            let whole = json!({"benchmark": "io500", "version": version(), "ranks": self.ranks(),
                "stonewall": self.config.stonewall, "phases": phases, "bandwidth": bandwidth,
                "metadata": metadata, "score": total, "valid": self.is_valid});
            files.push((path.clone(), format!("{whole:#}\n")));
        }
        for (path, text) in files {
            fs::write(&path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
        }
        let line = format!("\nThe result files are stored in the directory: {results}\n");
        (self.surroundings.out)(&line);
        let rate = |name: &str, unit, value| Rate { name: name.to_owned(), unit, value };
        let phases = scores.iter().filter(|score| PHASES[score.phase].group != Group::None);
        let phases = phases.map(|score| {
            let phase = &PHASES[score.phase];
            rate(phase.name, phase.group.unit(), score.score)
        });
        let sums = [
            rate("Bandwidth", Group::Bandwidth.unit(), bandwidth),
            rate("IOPS", Group::Metadata.unit(), metadata),
            rate("TOTAL", "score", total),
        ];
        Ok(phases.chain(sums).collect())
    }
}

/// The line of a phase in the summary.
pub(super) fn told(phase: &Phase, score: f64, seconds: f64, is_valid: bool) -> String {
    let head = if phase.group == Group::None { "[      ]" } else { "[RESULT]" };
    let unit = phase.group.unit();
    let (name, score) = (phase.name, format!("{score:.6}"));
    let valid = if is_valid { "" } else { " [INVALID]" };
    format!("{head} {name:>20} {score:>15} {unit} : time {seconds:.3} seconds{valid}")
}

/// The geometric mean of a group's scores; those of 0 do not count, as in io500.
pub(super) fn mean_of(scores: &[Score], group: Group) -> f64 {
    let of = scores.iter().filter(|score| PHASES[score.phase].group == group);
    let counted: Vec<f64> = of.map(|score| score.score).filter(|score| *score > 0.0).collect();
    match counted.len() {
        0 => 0.0,
        count => counted.iter().product::<f64>().powf(1.0 / count as f64),
    }
}
