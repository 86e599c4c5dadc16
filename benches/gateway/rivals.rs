//! HAProxy with a stick table, nginx, and Envoy with its stateful session filter, each set up for speed and for one thread.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;

use crate::proxy::{Proxy, command, free_port};

fn place(folder: &Path, name: &str, text: &str) -> anyhow::Result<std::path::PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Sticks by the app's session cookie, keeps connections to the backend, logs nothing.
pub(crate) async fn haproxy(folder: &Path, backend: SocketAddr) -> anyhow::Result<Proxy> {
    let port = free_port()?;
    let text = format!(
        "global
  nbthread 1
  maxconn 8000
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout tunnel 1h
  option forwardfor
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  http-request set-header X-Forwarded-Proto http
  default_backend app
backend app
  stick-table type string len 32 size 200k expire 1h
  stick on req.cook(session)
  server one {backend}
"
    );
    let file = place(folder, "haproxy.cfg", &text)?;
    let child = command(Path::new("haproxy"))
        .args(["-db", "-f"])
        .arg(file)
        .spawn()
        .context("start haproxy")?;
    proxy("haproxy", port, child).await
}

/// Keeps connections to the backend, logs nothing; it has no table of sessions.
pub(crate) async fn nginx(folder: &Path, backend: SocketAddr) -> anyhow::Result<Proxy> {
    let port = free_port()?;
    let place_of = folder.display();
    let text = format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {place_of}/nginx.pid;
error_log stderr error;
events {{ worker_connections 8000; }}
http {{
  access_log off;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  client_body_temp_path {place_of}/body;
  proxy_temp_path {place_of}/proxy;
  fastcgi_temp_path {place_of}/fastcgi;
  uwsgi_temp_path {place_of}/uwsgi;
  scgi_temp_path {place_of}/scgi;
  upstream app {{
    server {backend};
    keepalive 64;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
    }}
  }}
}}
"
    );
    let file = place(folder, "nginx.conf", &text)?;
    let child = command(Path::new("nginx"))
        .arg("-c")
        .arg(file)
        .spawn()
        .context("start nginx")?;
    proxy("nginx", port, child).await
}

/// Sticks by its own cookie, which names the backend.
pub(crate) async fn envoy(binary: &Path, folder: &Path, backend: SocketAddr) -> anyhow::Result<Proxy> {
    let port = free_port()?;
    let (host, app) = (backend.ip(), backend.port());
    let kind = "type.googleapis.com/envoy.extensions";
    let text = format!(
        "static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': {kind}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          use_remote_address: true
          generate_request_id: false
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes: [{{match: {{prefix: /}}, route: {{cluster: app, timeout: 0s}}}}]
          http_filters:
          - name: envoy.filters.http.stateful_session
            typed_config:
              '@type': {kind}.filters.http.stateful_session.v3.StatefulSession
              session_state:
                name: envoy.http.stateful_session.cookie
                typed_config:
                  '@type': {kind}.http.stateful_session.cookie.v3.CookieBasedSessionState
                  cookie: {{name: envoy-affinity, path: /}}
          - name: envoy.filters.http.router
            typed_config:
              '@type': {kind}.filters.http.router.v3.Router
  clusters:
  - name: app
    connect_timeout: 1s
    type: STATIC
    load_assignment:
      cluster_name: app
      endpoints:
      - lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: {host}, port_value: {app}}}}}}}}}]
"
    );
    let file = place(folder, "envoy.yaml", &text)?;
    let child = command(binary)
        .args(["--concurrency", "1", "-l", "error", "--disable-hot-restart", "-c"])
        .arg(file)
        .spawn()
        .context("start envoy")?;
    proxy("envoy", port, child).await
}

async fn proxy(name: &'static str, port: u16, child: tokio::process::Child) -> anyhow::Result<Proxy> {
    let proxy = Proxy {
        name,
        address: SocketAddr::from(([127, 0, 0, 1], port)),
        children: vec![child],
    };
    proxy.until_ready().await
}
