use brigade::{JobContext, JobError};

#[brigade::job]
async fn no_arguments(_ctx: JobContext) -> Result<(), JobError> {
    Ok(())
}

#[brigade::job]
async fn no_result(_ctx: JobContext, _n: u32) -> u32 {
    1
}

#[brigade::job]
fn not_async(_ctx: JobContext, _n: u32) -> Result<(), JobError> {
    Ok(())
}

#[brigade::job(nam = "x")]
async fn misspelt(_ctx: JobContext, _n: u32) -> Result<(), JobError> {
    Ok(())
}

fn main() {}
