//! A comparison as a page: one file that needs nothing else, for light and dark, with and without eyes.
//!
//! Every number in a table stands in `data-value` as it stands in the JSON.

use std::fmt::Write as _;

use super::report::{Phase, Report, Track};
use super::table::{ratio, spread};
use crate::plot::{Bars, Lines, Percentiles, duration, escaped};

/// Colors follow the reader's; nothing is loaded from anywhere, which the policy in the head makes sure of.
const STYLE: &str = "
:root { color-scheme: light dark; --text: #1a1a1a; --page: #ffffff; --line: #c8c8c8; --soft: #f3f3f3; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --page: #16181c; --line: #454a52; --soft: #22262c; }
}
body { font: 16px/1.5 sans-serif; color: var(--text); background: var(--page); margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap; }
th[scope=row], thead th:first-child { text-align: left; }
thead th { background: var(--soft); }
.wide { overflow-x: auto; margin: 1rem 0; }
figure { margin: 1.2rem 0; }
figcaption { font-size: 0.85rem; }
svg { max-width: 100%; height: auto; }
dt { font-weight: bold; }
dd { margin: 0 0 0.5rem; overflow-wrap: anywhere; }
code { font-size: 0.85rem; }
";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let title = escaped(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" \
         href=\"data:,\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n{}",
        introduction(report)
    );
    page += &section("rates", "Rates", &rates(report));
    let latencies = latencies(report);
    if !latencies.is_empty() {
        page += &section("latencies", "Latencies", &latencies);
    }
    let throughput = throughput(report);
    if !throughput.is_empty() {
        page += &section("throughput", "Throughput over time", &throughput);
    }
    page += &section("how", "How it was measured", &circumstances(report));
    page + "</main>\n</body>\n</html>\n"
}

fn section(id: &str, heading: &str, content: &str) -> String {
    format!(
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{heading}</h2>\n{content}</section>\n"
    )
}

fn names(report: &Report) -> Vec<&str> {
    report.targets.iter().map(|target| target.name.as_str()).collect()
}

fn introduction(report: &Report) -> String {
    let rounds = match report.rounds {
        1 => "one round".to_owned(),
        rounds => format!("medians of {rounds} interleaved rounds"),
    };
    format!(
        "<p>{}: {rounds} on {}, {}. Higher rates are better.</p>\n",
        escaped(&names(report).join(", ")),
        escaped(&report.machine.to_string()),
        escaped(&report.began),
    )
}

fn rates(report: &Report) -> String {
    let names = names(report);
    let first = escaped(names.first().copied().unwrap_or_default());
    let mut text = format!(
        "<div class=\"wide\"><table id=\"rates-table\">\n<caption>Rate of each phase, its least and most of all \
         rounds, and its ratio to {first}</caption>\n<thead><tr><th scope=\"col\">phase</th><th \
         scope=\"col\">unit</th>"
    );
    for (number, name) in names.iter().enumerate() {
        let name = escaped(name);
        // Writing to a string cannot fail.
        let _ = write!(text, "<th scope=\"col\">{name}</th>");
        if number > 0 {
            let _ = write!(text, "<th scope=\"col\">{name} / {first}</th>");
        }
    }
    text += "</tr></thead>\n<tbody>\n";
    for phase in &report.phases {
        let _ = write!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{}</td>",
            escaped(&phase.name),
            phase.unit
        );
        for (number, result) in phase.targets.iter().enumerate() {
            let cell = spread(&result.rate, report.rounds);
            let _ = write!(text, "<td data-value=\"{}\">{cell}</td>", result.rate.median);
            if number > 0 {
                let cell = ratio(&result.ratio, report.rounds);
                let _ = write!(text, "<td data-value=\"{}\">{cell}</td>", result.ratio.median);
            }
        }
        text += "</tr>\n";
    }
    text += "</tbody>\n</table></div>\n";
    let mut units: Vec<&str> = report.phases.iter().map(|phase| phase.unit).collect();
    units.dedup();
    units.sort_unstable();
    units.dedup();
    for unit in units {
        let title = format!("{unit}, the more the better; each phase by itself");
        let mut bars = Bars::new(&title, &names).by_group();
        for phase in report.phases.iter().filter(|phase| phase.unit == unit) {
            let spreads = phase.targets.iter().map(|result| result.rate);
            let values: Vec<_> = spreads.map(|rate| (rate.median, rate.min, rate.max)).collect();
            bars.add_spread(phase.name.clone(), &values);
        }
        text += &figure(&bars.draw(), "");
    }
    text
}

fn figure(svg: &str, caption: &str) -> String {
    let caption = match caption {
        "" => String::new(),
        caption => format!("<figcaption>{}</figcaption>\n", escaped(caption)),
    };
    format!("<figure>\n{svg}{caption}</figure>\n")
}

fn latencies(report: &Report) -> String {
    let mut text = String::new();
    let mut plots = String::new();
    let measured = |phase: &&Phase| phase.targets.iter().any(|result| result.latency.is_some());
    for phase in report.phases.iter().filter(measured) {
        let mut plot = Percentiles::new(&phase.name);
        let results = report.targets.iter().zip(&phase.targets).enumerate();
        for (kind, (target, result)) in results {
            let Some(latency) = result.latency else { continue };
            let _ = write!(
                text,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td data-value=\"{}\">{}</td>",
                escaped(&phase.name),
                escaped(&target.name),
                latency.operations,
                crate::plot::number(latency.operations as f64),
            );
            for time in latency.row() {
                let _ = write!(text, "<td data-value=\"{time}\">{}</td>", duration(time));
            }
            text += "</tr>\n";
            plot.add(kind, &target.name, latency.row());
        }
        plots += &figure(&plot.draw(), "");
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "<p>How long each operation took, in all rounds together. In the plots a line goes from the median (large \
         dot) to the longest (small dot); the marks between are p90, p99 and p99.9.</p>\n<div \
         class=\"wide\"><table id=\"latencies-table\">\n<caption>Latencies of each phase and \
         target</caption>\n<thead><tr><th scope=\"col\">phase</th><th scope=\"col\">target</th><th \
         scope=\"col\">operations</th><th scope=\"col\">p50</th><th scope=\"col\">p90</th><th \
         scope=\"col\">p99</th><th scope=\"col\">p99.9</th><th scope=\"col\">max</th></tr></thead>\n\
         <tbody>\n{text}</tbody>\n</table></div>\n{plots}"
    )
}

fn throughput(report: &Report) -> String {
    let mut text = String::new();
    for phase in &report.phases {
        let tracks = || phase.targets.iter().flat_map(|result| &result.throughput);
        let Some(unit) = tracks().find(|track| !track.points.is_empty()).map(|track| track.unit)
        else {
            continue;
        };
        let mut lines = Lines::new(&format!("{}, {unit}", phase.name), &names(report));
        for (kind, result) in phase.targets.iter().enumerate() {
            let main = middle(&result.rounds);
            let is_main = |track: &Track| track.round == main + 1;
            for track in &result.throughput {
                lines.add(kind, is_main(track), track.points.clone());
            }
        }
        text += &figure(&lines.draw(), "");
    }
    match text.as_str() {
        "" => text,
        _ => format!(
            "<p>Sampled ten times a second. The strong line of each target is its round of the median rate, the \
             the rest is faint.</p>\n{text}"
        ),
    }
}

/// The round whose rate is the median or next to it.
fn middle(rounds: &[f64]) -> usize {
    let median = super::Spread::of(rounds).median;
    let apart = |round: &usize| (rounds[*round] - median).abs();
    (0..rounds.len()).min_by(|one, other| apart(one).total_cmp(&apart(other))).unwrap_or(0)
}

fn circumstances(report: &Report) -> String {
    let mut text = "<dl>\n".to_owned();
    let mut pair = |name: &str, value: &str| {
        let _ = writeln!(text, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
    };
    pair("Machine", &report.machine.to_string());
    pair("Began", &format!("{} UTC", report.began));
    pair("Finished", &format!("{} UTC", report.finished));
    pair("Version", &report.version);
    pair("Command line", &report.command_line.join(" "));
    pair("Benchmark", &report.benchmark.join(" "));
    for target in &report.targets {
        pair(
            &format!("Target {}", escaped(&target.name)),
            &format!("{:?} {}", target.api, target.place),
        );
    }
    text + "</dl>\n<p>Rounds are interleaved, and the target that comes first changes with each. Each run works in \
            a directory of its own. A ratio is the median of the ratios within rounds.</p>\n"
}
