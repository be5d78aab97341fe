//! Imports for a mount, made by its node.

use std::sync::Arc;

use sheen_client::config::{Connector, ImportPlan, ServerKind};
use sheen_node::rpc::{ImportConfig, ImportKind, RpcNode};
use sheen_rpc::Import;

/// Makes node imports for the client.
pub struct NodeConnector(pub Arc<RpcNode>);

impl Connector for NodeConnector {
    fn import(&self, plan: ImportPlan) -> Arc<dyn Import> {
        let kind = match plan.service {
            ServerKind::Mgs => ImportKind::Mgs,
            ServerKind::Mdt => ImportKind::Mds,
            ServerKind::Ost => ImportKind::Ost,
        };
        self.0.import(ImportConfig {
            target: plan.target,
            client: plan.client,
            nids: plan.nids,
            kind,
            data: plan.data,
            requests_in_flight: 0,
            events: plan.events,
        })
    }
}

/// The same, which reports each import before it makes it: a mount waits for its target next.
pub struct ReportingConnector<F>(pub NodeConnector, pub F);

impl<F: Fn(&ImportPlan) + Send + Sync> Connector for ReportingConnector<F> {
    fn import(&self, plan: ImportPlan) -> Arc<dyn Import> {
        (self.1)(&plan);
        self.0.import(plan)
    }
}
