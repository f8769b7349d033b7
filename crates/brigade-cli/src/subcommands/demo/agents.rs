//! The agents of the demonstration: a chef and three cooks, which play a script.

use std::fs;
use std::time::{Duration, Instant};

use brigade_protocol::frames::ClientRole;
use brigade_protocol::requests::{ListSubtreeRequest, ReadTranscriptRequest, RunRequest};
use brigade_protocol::{DaemonConnection, TaskInfo};

use super::{DemoStage, PromiseCheck, SESSION, new_check, task_target};
use crate::exit_code::CliError;

const SCRIPT: &str = include_str!("chef.script");
const COOKS: [&str; 3] = ["Soup", "Roast", "Dessert"];
/// The message of the chef to one cook.
const STEERING_MESSAGE: &str = "A guest cannot eat nuts.";
const AGENTS_TIMEOUT: Duration = Duration::from_secs(10);

impl DemoStage {
    /// Starts the chef, and waits until all agents are at work.
    pub(super) async fn start_agents(
        &self,
        client: &DaemonConnection,
    ) -> Result<Vec<TaskInfo>, CliError> {
        let script = self.demo_dir.join("chef.script");
        fs::write(&script, SCRIPT)?;
        let run = RunRequest {
            name: Some("Chef".to_owned()),
            model: Some(format!("script:{}", script.display())),
            cwd: Some(self.demo_dir.display().to_string()),
            ..RunRequest::new(SESSION, "Cook a dinner of three courses.")
        };
        let chef = client.call(run).await?.task;
        let operator = self.connect_operator().await?;
        let deadline = Instant::now() + AGENTS_TIMEOUT;
        loop {
            let agents = self.list_agents(&operator, &chef).await?;
            if let [chef, soup, _, dessert] = agents.as_slice()
                && self.read_transcript(&operator, chef).await?.contains("was sent to Dessert")
                && self.read_transcript(&operator, soup).await?.contains("exit code 0")
                && !self.read_transcript(&operator, dessert).await?.contains(STEERING_MESSAGE)
            {
                let about =
                    ["delegates a dinner to three cooks", "has made its stock", "takes its time"];
                let about = about.into_iter().chain(["gets a message: a guest cannot eat nuts"]);
                for (agent, about) in agents.iter().zip(about) {
                    self.print_line(format!(
                        "  {:<11} {:<9} {about}",
                        agent.address,
                        agent.label()
                    ))?;
                }
                return Ok(agents);
            }
            if Instant::now() > deadline {
                let transcript = self.read_transcript(&operator, &chef).await?;
                return Err(CliError::internal(format!(
                    "the chef did not start its cooks: {transcript}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for the dinner, and checks its course. `before` holds the agents before the kill,
    /// `found` those that the next daemon found.
    pub(super) async fn check_agents(
        &self,
        client: &DaemonConnection,
        before: &[TaskInfo],
        found: &[TaskInfo],
    ) -> Result<[PromiseCheck; 3], CliError> {
        let ended = self.wait_for_task(client, &before[0]).await?;
        let result: Option<String> = ended.result.and_then(|result| result.decode().ok());
        self.print_line(format!("\nChef: {}", result.as_deref().unwrap_or(&ended.state)))?;
        let operator = self.connect_operator().await?;
        let after = self.list_agents(&operator, &before[0]).await?;
        Ok([
            self.check_resumed(before, found, &after),
            self.check_delegation(&operator, &after).await?,
            self.check_steering(&operator, &after).await?,
        ])
    }

    /// Checks that all agents continued the same run after the kill, succeeded, and repeated no
    /// step.
    fn check_resumed(
        &self,
        before: &[TaskInfo],
        found: &[TaskInfo],
        after: &[TaskInfo],
    ) -> PromiseCheck {
        let resumed = |agent: &&TaskInfo| {
            let same = |other: &&TaskInfo| other.address == agent.address;
            let was_alive = found.iter().find(same).is_some_and(|found| found.alive);
            let ended = after.iter().find(same);
            let ended = ended.filter(|ended| ended.run == 1 && ended.attempt > agent.attempt);
            was_alive && ended.is_some_and(|ended| ended.state == "succeeded")
        };
        let resumed = before.iter().filter(resumed).count();
        let stock = fs::read_to_string(self.demo_dir.join("pot")).unwrap_or_default();
        let times = match stock.lines().count() {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let text = format!("{resumed} continued from their last step; stock made {times}");
        new_check("agents", resumed == before.len() && stock == "stock\n", text)
    }

    /// Checks the children in the store, and their results in the chef's transcript.
    async fn check_delegation(
        &self,
        client: &DaemonConnection,
        after: &[TaskInfo],
    ) -> Result<PromiseCheck, CliError> {
        let names: Vec<&str> = after.iter().skip(1).map(TaskInfo::label).collect();
        let transcript = self.read_transcript(client, &after[0]).await?;
        let results =
            COOKS.map(|cook| transcript.matches(&format!("name=\"{cook}\" outcome=")).count());
        let kept = names == COOKS && results == [1, 1, 1];
        let text = match kept {
            true => "3 sub-agents, 3 results: each once".to_owned(),
            false => format!("sub-agents {names:?}, their results {results:?} times"),
        };
        Ok(new_check("delegation", kept, text))
    }

    async fn check_steering(
        &self,
        client: &DaemonConnection,
        after: &[TaskInfo],
    ) -> Result<PromiseCheck, CliError> {
        let dessert = after.iter().find(|agent| agent.label() == "Dessert");
        let transcript = match dessert {
            Some(dessert) => self.read_transcript(client, dessert).await?,
            None => String::new(),
        };
        let deliveries = transcript.matches(STEERING_MESSAGE).count();
        let kept = deliveries == 1
            && transcript.contains("without nuts")
            && !transcript.contains("Walnut");
        let text = match deliveries {
            1 => "sent before the kill, Dessert read it once, after it".to_owned(),
            times => format!("Dessert read the message {times} times"),
        };
        Ok(new_check("steering", kept, text))
    }

    /// Connects as the operator, who sees all descendants. A client sees only the tasks it started.
    pub(super) async fn connect_operator(&self) -> Result<DaemonConnection, CliError> {
        Ok(DaemonConnection::connect(&self.state_dir, ClientRole::Operator).await?)
    }

    /// Lists the chef and its cooks.
    async fn list_agents(
        &self,
        client: &DaemonConnection,
        chef: &TaskInfo,
    ) -> Result<Vec<TaskInfo>, CliError> {
        let mut tasks = client.call(ListSubtreeRequest { target: task_target(chef) }).await?;
        tasks.retain(|task| task.is_agent());
        Ok(tasks)
    }

    async fn read_transcript(
        &self,
        client: &DaemonConnection,
        agent: &TaskInfo,
    ) -> Result<String, CliError> {
        let request =
            ReadTranscriptRequest { target: task_target(agent), from: 0, max_bytes: None };
        Ok(client.call(request).await?.unwrap_or_default().text)
    }
}
