//! What the agents measure, held against what the kernel counted.

use std::time::Duration;

use elastic_pool::clock::Clock;

use crate::containers;
use crate::harness::{eventually, metrics, sample, throughout};
use crate::load::{Load, assert_held};
use crate::shop::{Shop, manifest, name};

/// The app container's CPU limit in cores.
const LIMIT: f64 = 0.2;

#[test]
fn an_agent_s_cpu_reading_is_the_app_container_s_cpu_time() {
    let mut minute = manifest();
    // The mean of a whole minute is then one figure of the metrics.
    minute["spec"]["thresholds"]["smoothingRows"] = 60.into();
    minute["spec"]["workers"]["max"] = 1.into();
    let shop = Shop::open("cpu", &minute, 1);
    let load = Load::start(&shop, "15x75s", "--cpu-ms 4 --think-ms 500 --arrivals 15");
    let namespace = format!("namespace=\"{}\"", shop.ns());
    eventually("everybody is logged in", 30, || {
        let users = sample(&metrics(), "elastic_pool_group_users", &namespace);
        if users == Some(15.0) {
            Ok(())
        } else {
            Err(format!("{users:?}"))
        }
    });
    let pod = shop.workers().remove(0);
    let (clock, before) = (Clock::start(), containers::cpu_seconds(&pod, "app"));
    throughout(Duration::from_secs(61), || {});
    let (elapsed, after) = (clock.now(), containers::cpu_seconds(&pod, "app"));
    let label = format!("component=\"cpu\",group=\"shop-blue\",{namespace}");
    let read = sample(&metrics(), "elastic_pool_worker_component_ratio", &label);
    let read = read.expect("a CPU component") * LIMIT;
    let counted = (after - before) / elapsed.as_secs_f64();
    println!("{}: read {read:.4} cores, counted {counted:.4}", name(&pod));
    assert!(counted > 0.02, "the load did nothing: {counted} cores");
    assert!(
        (read - counted).abs() < 0.1 * counted,
        "read {read} cores, the kernel counted {counted}"
    );
    assert_held(&load.finish());
}
