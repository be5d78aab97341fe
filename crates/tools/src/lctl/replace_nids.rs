//! `lctl replace_nids`: where a target is from now on.

use clap::Args;
use sheen_types::{Errno, Nid, TargetName};

use super::params::on_the_mgs;
use crate::origins;
use crate::output::Fault;
use sheen_control::api::REPLACE_NIDS;

/// Options of `replace_nids`.
#[derive(Args)]
pub(super) struct Replace {
    /// Target, for example lustre-OST0000
    #[arg(value_name = "TARGET")]
    target: String,
    /// NIDs of its node, separated by commas; NIDs of its failover partners after colons
    #[arg(value_name = "NID[,NID][:NID,NID]")]
    nids: String,
}

pub(super) fn run(options: &Replace) -> Result<(), Fault> {
    let failed = |errno| Fault::new(errno, format!("error: replace_nids: {errno}"));
    let target: TargetName = options.target.parse().map_err(|_| failed(Errno::EINVAL))?;
    let nodes = nodes(&options.nids).ok_or_else(|| failed(Errno::EINVAL))?;
    origins::choose_mgs("lctl replace_nids", |name| name == target.fsname)?;
    let name = target.to_string();
    let words: Vec<&str> = std::iter::once(name.as_str()).chain(nodes).collect();
    on_the_mgs(REPLACE_NIDS, &words).map_err(failed)
}

/// The NIDs of each node, if they are some.
fn nodes(text: &str) -> Option<Vec<&str>> {
    let nodes: Vec<&str> = text.split(':').collect();
    let is_nid = |nid: &str| nid.parse::<Nid>().is_ok();
    nodes.iter().all(|node| node.split(',').all(is_nid)).then_some(nodes)
}

#[cfg(test)]
mod tests {
    use super::nodes;

    #[test]
    fn nodes_stand_between_colons_and_their_nids_between_commas() {
        assert_eq!(nodes("1.2.3.4@tcp"), Some(vec!["1.2.3.4@tcp"]));
        let two = "1.2.3.4@tcp,1.2.3.5@tcp1:1.2.3.6@tcp";
        assert_eq!(nodes(two), Some(vec!["1.2.3.4@tcp,1.2.3.5@tcp1", "1.2.3.6@tcp"]));
        for wrong in ["", "bogus", "1.2.3.4@tcp:", "1.2.3.4@tcp,,1.2.3.5@tcp"] {
            assert_eq!(nodes(wrong), None, "{wrong}");
        }
    }
}
