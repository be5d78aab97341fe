//! Imports for a mount, made by its node.

use std::sync::Arc;

use sheen_client::config::Connector;
use sheen_node::rpc::{ImportConfig, RpcNode};
use sheen_rpc::Import;

/// Makes node imports for the client.
pub struct NodeConnector(pub Arc<RpcNode>);

impl Connector for NodeConnector {
    fn import(&self, config: ImportConfig) -> Arc<dyn Import> {
        self.0.import(config)
    }
}

/// Makes node imports as [`NodeConnector`] does, and reports each before it makes it: a mount waits for its target
/// next.
pub struct ReportingConnector<F>(pub NodeConnector, pub F);

impl<F: Fn(&ImportConfig) + Send + Sync> Connector for ReportingConnector<F> {
    fn import(&self, config: ImportConfig) -> Arc<dyn Import> {
        (self.1)(&config);
        self.0.import(config)
    }
}
