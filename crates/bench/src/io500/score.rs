//! What phases and the whole reached, and how it is reported: io500's lines, files and score.

use std::fs;

use serde_json::{Value, json};

use super::phases::{Group, Phase};
use super::whole::Whole;
use super::{Options, hash_of, version};
use crate::Rate;
use crate::ranks::Ended;

/// What a phase reached.
#[derive(Clone, Copy)]
pub(super) struct Score {
    pub(super) phase: &'static Phase,
    pub(super) score: f64,
    pub(super) seconds: f64,
    pub(super) is_valid: bool,
}

/// What a run reached: in GiB/s, in kIOPS, and in all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Total {
    pub(super) bandwidth: f64,
    pub(super) metadata: f64,
    pub(super) score: f64,
}

impl Total {
    /// Of all phases, or of those that a standard run has too.
    pub(super) fn of(scores: &[Score], is_extended: bool) -> Self {
        let mean = |group| {
            let of = scores.iter().filter(|score| score.phase.group == group);
            mean_of(of.filter(|score| is_extended || !score.phase.optional))
        };
        let (bandwidth, metadata) = (mean(Group::Bandwidth), mean(Group::Metadata));
        Self { bandwidth, metadata, score: (bandwidth * metadata).sqrt() }
    }

    /// By which io500 knows that a result was not changed: of the version unless it is the extended one, of the
    /// phases that only the one or the other has, and of the means and the score.
    pub(super) fn hash(
        &self,
        scores: &[Score],
        is_extended: bool,
        is_valid: bool,
        version: &str,
    ) -> u32 {
        let own = scores.iter().filter(|score| {
            score.phase.group != Group::None && score.phase.optional == is_extended
        });
        let phases = own.map(|one| (one.phase.name, one.score));
        let means = [("MD", self.metadata), ("BW", self.bandwidth), ("SCORE", self.score)];
        let of = |(name, value): (&str, f64)| hash_of(name, &format!("{value:.6}"));
        let numbers = phases.chain(means).map(of).fold(0, |hash, one| hash ^ one);
        let version = if is_extended { 0 } else { hash_of("version", version) };
        numbers ^ version ^ if is_valid { 0 } else { hash_of("valid", "NO") }
    }

    fn json(&self, is_valid: bool) -> Value {
        let Self { bandwidth, metadata, score } = self;
        json!({"bandwidth": bandwidth, "metadata": metadata, "score": score, "valid": is_valid})
    }

    fn rates(&self, behind: &str) -> [Rate; 3] {
        let Self { bandwidth, metadata, score } = *self;
        let rate = |name: &str, unit, value| Rate { name: format!("{name}{behind}"), unit, value };
        [
            rate("Bandwidth", Group::Bandwidth.unit(), bandwidth),
            rate("IOPS", Group::Metadata.unit(), metadata),
            rate("TOTAL", "score", score),
        ]
    }
}

impl Whole<'_> {
    /// Prints the score and writes the files.
    pub(super) fn finish(
        &mut self,
        options: &Options,
        scores: &[Score],
    ) -> Result<Vec<Rate>, Ended> {
        let standard = Total::of(scores, false);
        self.say_total("SCORE", standard, scores);
        let extended = self.config.extended.then(|| Total::of(scores, true));
        if let Some(extended) = extended {
            self.say_total("SCOREX", extended, scores);
        }
        self.write_time("; END ");
        let results = self.results.clone();
        let mut files = vec![
            (format!("{results}/result.txt"), self.result.clone()),
            (format!("{results}/result_summary.txt"), self.summary.clone()),
        ];
        if let Some(path) = &options.json {
            let whole = self.json(scores, standard, extended);
            files.push((path.clone(), format!("{whole:#}\n")));
        }
        for (path, text) in files {
            fs::write(&path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
        }
        let line = format!("\nThe result files are stored in the directory: {results}\n");
        (self.surroundings.out)(&line);
        let counted = scores.iter().filter(|score| score.phase.group != Group::None);
        let phases = counted.map(|Score { phase, score, .. }| Rate {
            name: phase.name.to_owned(),
            unit: phase.unit(),
            value: *score,
        });
        let extended = extended.into_iter().flat_map(|total| total.rates(" extended"));
        Ok(phases.chain(standard.rates("")).chain(extended).collect())
    }

    fn say_total(&mut self, section: &str, total: Total, scores: &[Score]) {
        let is_extended = section == "SCOREX";
        let is_valid = if is_extended { self.is_valid_extended } else { self.is_valid };
        let hash = total.hash(scores, is_extended, is_valid, &version());
        let Total { bandwidth, metadata, score } = total;
        let valid = if is_valid { "" } else { " [INVALID]" };
        self.result += &format!("\n[{section}]\n");
        self.pair("MD", &format!("{metadata:.6}"));
        self.pair("BW", &format!("{bandwidth:.6}"));
        self.pair("SCORE", &format!("{score:.6}{valid}"));
        self.pair("hash", &format!("{hash:X}"));
        self.say(&format!(
            "[{section:<6}] Bandwidth {bandwidth:.6} GiB/s : IOPS {metadata:.6} kiops : TOTAL {score:.6}{valid}"
        ));
    }

    fn json(&self, scores: &[Score], standard: Total, extended: Option<Total>) -> Value {
        let one = |Score { phase, score, seconds, is_valid }: &Score| {
            json!({"name": phase.name, "score": score, "unit": phase.unit(), "seconds": seconds,
                   "valid": is_valid, "optional": phase.optional})
        };
        let mut whole = standard.json(self.is_valid);
        whole["benchmark"] = json!("io500");
        whole["version"] = json!(version());
        whole["mode"] = json!(self.mode());
        whole["ranks"] = json!(self.ranks());
        whole["stonewall"] = json!(self.config.stonewall);
        whole["phases"] = scores.iter().map(one).collect();
        if let Some(extended) = extended {
            whole["extended"] = extended.json(self.is_valid_extended);
        }
        whole
    }
}

/// The line of a phase in the summary.
pub(super) fn result_line(phase: &Phase, score: f64, seconds: f64, is_valid: bool) -> String {
    let head = if phase.group == Group::None { "[      ]" } else { "[RESULT]" };
    let unit = phase.unit();
    let (name, score) = (phase.name, format!("{score:.6}"));
    let valid = if is_valid { "" } else { " [INVALID]" };
    format!("{head} {name:>20} {score:>15} {unit} : time {seconds:.3} seconds{valid}")
}

/// The geometric mean; scores of 0 do not count, as in io500.
fn mean_of<'s>(scores: impl Iterator<Item = &'s Score>) -> f64 {
    let counted: Vec<f64> = scores.map(|score| score.score).filter(|score| *score > 0.0).collect();
    match counted.len() {
        0 => 0.0,
        count => counted.iter().product::<f64>().powf(1.0 / count as f64),
    }
}
