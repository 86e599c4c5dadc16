//! A real Prometheus inside the cluster's network scrapes the operator; it stops with the test.

use std::fs::File;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::harness::{SYSTEM, eventually, get, inside};
use crate::load::{Load, assert_held};
use crate::shop::{Shop, manifest, name};

struct Prometheus {
    child: Child,
    folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(targets: &[String]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("prometheus.yml");
        let text = serde_json::json!({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "operator", "static_configs": [{"targets": targets}]}]
        });
        std::fs::write(&config, text.to_string()).expect("a configuration");
        let log = File::create(folder.path().join("log")).expect("a log");
        let (config, data) = (
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.path().join("data").display()),
        );
        let args = ["prometheus", &config, &data, "--web.listen-address=127.0.0.1:0"];
        let child = inside(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus");
        Self { child, folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The address that it chose.
    fn url(&self) -> String {
        eventually("prometheus listens", 30, || {
            let log = self.log();
            let address = log.split("msg=\"Listening on\" address=127.0.0.1:").nth(1);
            let port: Option<String> =
                address.map(|text| text.chars().take_while(char::is_ascii_digit).collect());
            match port {
                Some(port) if !port.is_empty() => Ok(format!("http://127.0.0.1:{port}")),
                _ => Err(log),
            }
        })
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The samples that a query gives: labels and value.
fn query(url: &str, expression: &str) -> Result<Vec<(Value, f64)>, String> {
    let output = inside(&["promtool", "query", "instant", "-o", "json", url, expression]).output();
    let output = output.expect("promtool");
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let samples = answer.as_array().into_iter().flatten();
    let value = |sample: &Value| sample["value"][1].as_str()?.parse::<f64>().ok();
    Ok(samples
        .filter_map(|sample| Some((sample["metric"].clone(), value(sample)?)))
        .collect())
}

#[test]
fn prometheus_answers_with_the_occupancy_of_each_worker_and_the_ledger_of_each_group() {
    let mut two = manifest();
    two["spec"]["workers"]["min"] = 2.into();
    let shop = Shop::open("prometheus", &two, 2);
    let load = Load::start(&shop, "25x20s", "--cpu-ms 4 --arrivals 15");
    let pods = get(&format!("-n {SYSTEM} pods"));
    let pods = pods["items"].as_array().expect("pods").iter();
    let targets: Vec<String> = pods
        .filter_map(|pod| pod["status"]["podIP"].as_str())
        .map(|address| format!("{address}:9090"))
        .collect();
    let prometheus = Prometheus::start(&targets);
    let url = prometheus.url();
    let of = format!("{{namespace=\"{}\"}}", shop.ns());
    let workers: Vec<String> = shop.workers().iter().map(name).collect();
    eventually("every worker's occupancy, one above nothing", 30, || {
        let samples = query(&url, &format!("elastic_pool_worker_occupancy_ratio{of}"))?;
        let known = |worker: &String| samples.iter().any(|(labels, _)| labels["worker"] == **worker);
        let busy = samples.iter().any(|(_, value)| *value > 0.05 && *value <= 1.0);
        if workers.iter().all(known) && busy {
            Ok(())
        } else {
            Err(format!("{workers:?} in {samples:?}"))
        }
    });
    let one = |metric: &str| -> f64 {
        let samples = query(&url, &format!("{metric}{of}")).expect("an answer");
        assert_eq!(samples.len(), 1, "{metric}: {samples:?}");
        samples[0].1
    };
    // Capacity and headroom in one expression, so that both are of one scrape.
    let balance = query(
        &url,
        &format!(
            "elastic_pool_group_capacity{of} - elastic_pool_group_occupied{of} - elastic_pool_group_headroom{of}"
        ),
    );
    let balance = balance.expect("an answer");
    assert!(
        balance.len() == 1 && balance[0].1.abs() < 1e-6,
        "C - O = H: {balance:?}"
    );
    assert!((one("elastic_pool_group_capacity") - 1.3).abs() < 1e-6);
    assert!(one("elastic_pool_group_occupied") > 0.0);
    assert_held(&load.finish());
}
