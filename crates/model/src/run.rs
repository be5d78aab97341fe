//! Steps done on a cluster and on the model, compared after each.

use sheen_vnet::{NetworkConditions, Virtual};

use crate::cluster::{Cluster, Home};
use crate::compare;
use crate::driver::Driver;
use crate::model::Model;
use crate::operation::Step;

/// Does `steps` on a new cluster, whose network and scheduling `seed` decides, and on a model.
///
/// # Errors
/// The first step after which the two differ, and in what.
pub fn run(seed: u64, home: Home, steps: &[Step]) -> Result<(), String> {
    let world = Virtual::new(seed, NetworkConditions::default());
    let cluster = Cluster::start(&world, home);
    let clients = cluster.clients.clone();
    let (io, steps) = (world.world(), steps.to_vec());
    let outcome = world.run(async move {
        let mut drivers = clients.map(|files| Driver::new(files, io.clone()));
        let mut model = Model::default();
        for (number, step) in steps.iter().enumerate() {
            let expected = model.apply(step);
            let answered = drivers[step.client].apply(&step.operation).await;
            let at = || format!("step {number}, {step:?}");
            if answered != expected {
                return Err(format!("{}: {answered:?} instead of {expected:?}", at()));
            }
            // The client that did nothing first: it must have been notified.
            for client in [1 - step.client, step.client] {
                let same = compare::tree(&mut drivers[client], client, &model).await;
                same.map_err(|fault| format!("{}: client {client}: {fault}", at()))?;
            }
        }
        Ok(())
    });
    drop(cluster);
    outcome
}
