//! Compiles proto/channel.proto without a protoc binary.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/channel.proto");
    let files = protox::compile(["proto/channel.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_transport(true)
        .compile_fds(files)?;
    Ok(())
}
