//! Coordination on a Redis Cluster: the contract.

use crate::contract;
use crate::hub::shared;

shared!(OnCluster, bongsu_testkit::Engine::Cluster);

contract!(OnCluster, fleet);
