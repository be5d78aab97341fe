//! `sheen server --metrics`: what the targets of a process count, as OpenMetrics over HTTP.
//!
//! A page is made for each request, of the counters that the parameter tree shows; a scrape costs what reading
//! these parameters costs. Nothing identifies the scraper: the address decides who may connect.

mod families;
mod page;
mod targets;

use std::net::SocketAddr;
use std::sync::Arc;

use sheen_control::PageServer;
use sheen_node::rpc::RpcNode;
use sheen_types::Unit;

use crate::server::{service_samples, services as services_of};
use crate::{HostedTarget, resident_bytes};
use families::FAMILIES;
use page::Page;

/// Serves the page at `address` until what this returns is dropped.
///
/// # Errors
/// The address cannot be listened at.
pub fn serve(
    address: SocketAddr,
    node: &Arc<RpcNode>,
    running: &[Arc<HostedTarget>],
) -> std::io::Result<PageServer> {
    let (node, running) = (Arc::clone(node), running.to_vec());
    let make = move || text(&node, &running);
    PageServer::start(address, page::KIND, make)
}

fn text(node: &RpcNode, running: &[Arc<HostedTarget>]) -> String {
    let mut page = Page::new(&FAMILIES);
    let is_healthy = running.iter().all(|one| one.served.target.is_healthy());
    page.add("lustre_health_healthy", &[], u64::from(is_healthy));
    page.add("lustre_mem_used", &[], resident_bytes());
    let (active, waiting) = node.service_load();
    page.add("sheen_requests_running", &[], active as u64);
    page.add("sheen_requests_waiting", &[], waiting as u64);
    for one in running {
        targets::add(&mut page, one);
    }
    services(&mut page, node, running);
    page.finish()
}

/// Requests by service. The exporter names the unit of those of an MDS and an OSS alone.
fn services(page: &mut Page, node: &RpcNode, running: &[Arc<HostedTarget>]) {
    for (service, portal) in services_of(running) {
        let leaf = service.rsplit('.').next().unwrap_or(service);
        let family = match service.split('.').next() {
            Some("mds") => format!("lustre_mds_{leaf}_stats"),
            Some("ost") => format!("lustre_oss_{leaf}_stats"),
            Some("ldlm") => format!("lustre_{leaf}_stats"),
            _ => continue,
        };
        for samples in service_samples(node, running, portal) {
            let operation = ("operation", samples.line.name);
            let units = ("units", samples.line.unit.name());
            match family.starts_with("lustre_ldlm") {
                true => page.add(&family, &[operation], samples.count),
                false => page.add(&family, &[operation, units], samples.count),
            }
            if samples.line.unit == Unit::Microseconds {
                let labels = [("service", leaf), operation];
                page.add("sheen_service_microseconds_total", &labels, samples.sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn families_have_names_that_openmetrics_allows() {
        let mut names = BTreeSet::new();
        for family in &FAMILIES {
            assert!(names.insert(family.name), "{} twice", family.name);
            let is_total = family.name.ends_with("_total");
            assert!(family.kind != page::Type::Counter || is_total, "{}", family.name);
            assert!(!family.help.contains(['\n', '\\']), "{}", family.name);
        }
        // A counter's family must not be called as another family is.
        for family in FAMILIES.iter().filter(|family| family.kind == page::Type::Counter) {
            let stem = family.name.trim_end_matches("_total");
            assert!(!names.contains(stem), "{stem} is two families");
        }
    }

    /// Names in the dashboard's expressions that are functions or words of PromQL.
    const WORDS: [&str; 7] = ["sum", "rate", "by", "max", "topk", "clamp_min", "increase"];

    #[test]
    fn the_dashboard_shows_only_what_there_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/grafana/sheen.json");
        let text = std::fs::read_to_string(path).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let mut expressions = Vec::new();
        for panel in panels.iter().filter(|panel| panel["type"] != "row") {
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{} shows nothing", panel["title"]);
            expressions.extend(targets.iter().map(|one| one["expr"].as_str().unwrap()));
        }
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            expressions.extend(variable["definition"].as_str());
        }
        assert!(expressions.len() > 15);
        for expression in expressions {
            let mut found = 0;
            let words = outside_braces(expression);
            for word in words.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            {
                let is_name = word.starts_with("lustre_")
                    || word.starts_with("sheen_")
                    || word.starts_with("recovery_");
                if is_name {
                    assert!(FAMILIES.iter().any(|family| family.name == word), "{word}");
                    found += 1;
                }
            }
            assert!(found > 0, "{expression}");
            assert!(WORDS.iter().any(|word| expression.contains(word)) || found == 1);
        }
    }

    /// An expression without its labels and ranges.
    fn outside_braces(expression: &str) -> String {
        let mut depth = 0_i32;
        let mut text = String::new();
        for letter in expression.chars() {
            match letter {
                '{' | '[' => depth += 1,
                '}' | ']' => depth -= 1,
                letter if depth == 0 => text.push(letter),
                _ => {}
            }
        }
        text
    }
}
