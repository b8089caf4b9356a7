//! Reports on a run folder: `cargo run -p fencepost-reports --example report -- DIR`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("give the run folder")?;
    fencepost_reports::render(std::path::Path::new(&folder))?;
    Ok(())
}
