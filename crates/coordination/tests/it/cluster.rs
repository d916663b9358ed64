//! Runs the contracts on a Redis Cluster.

use crate::contract;
use crate::hub::fleet_engine;

fleet_engine!(ClusterEngine, bongsu_testkit::Engine::Cluster);

contract!(ClusterEngine, fleet);
