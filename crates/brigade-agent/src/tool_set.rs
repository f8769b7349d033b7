//! The tools of one agent: a fixed set, and a source whose tools change during the run.

use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};

use brigade_llm::ToolSpec;

use crate::tool::{BoxFuture, Tool};

/// The tools of one agent, by name. An added tool replaces an earlier one of the same name.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    tools: Vec<Tool>,
    /// The specs of `tools`, built on first use.
    specs: OnceLock<Arc<[ToolSpec]>>,
    source: Option<Arc<dyn ToolSource>>,
    /// All offers of the source so far. Running calls keep references to the tools of older offers.
    offers: AppendOnlyList<ToolOffer>,
    stand_ins: AppendOnlyList<Tool>,
}

#[derive(Debug)]
struct ToolOffer {
    tools: Arc<[Tool]>,
    /// The specs of all tools of the agent, including those of the offer.
    specs: Arc<[ToolSpec]>,
}

/// A source of tools that change during a run, such as an MCP server.
pub trait ToolSource: Debug + Send + Sync + 'static {
    /// Waits until the first tools are available, or known to be unavailable.
    fn wait_until_ready(&self) -> BoxFuture<'_, ()>;

    /// Returns the current tools. Returns the same `Arc` as long as they do not change.
    fn offer(&self) -> Arc<[Tool]>;

    /// Returns a substitute for a tool of the source that is currently unavailable.
    fn stand_in(&self, name: &str) -> Option<Tool>;
}

impl ToolSet {
    pub fn add(&mut self, tool: impl Into<Tool>) {
        let tool = tool.into();
        self.specs = OnceLock::new();
        let name = tool.spec().name.clone();
        self.tools.retain(|other| other.spec().name != name);
        self.tools.push(tool);
    }

    /// Sets the source of further tools. Added tools take precedence over those of the source.
    pub fn add_source(&mut self, source: Arc<dyn ToolSource>) {
        self.source = Some(source);
        self.offers = AppendOnlyList::new();
        self.stand_ins = AppendOnlyList::new();
    }

    /// Removes the added tools for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.specs = OnceLock::new();
        self.tools.retain(|tool| keep(&tool.spec().name));
    }

    /// Waits until the first tools of the source are available, if there is a source.
    pub async fn wait_until_ready(&self) {
        if let Some(source) = &self.source {
            source.wait_until_ready().await;
        }
    }

    /// Finds a tool by name, among those that [`ToolSet::specs`] returned last. For an unavailable tool of
    /// the source it returns a substitute.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        let named = |tool: &&Tool| &*tool.spec().name == name;
        if let Some(tool) = self.tools.iter().find(named) {
            return Some(tool);
        }
        let source = self.source.as_ref()?;
        if let Some(tool) = self.current_offer(source).tools.iter().find(named) {
            return Some(tool);
        }
        if let Some(tool) = self.stand_ins.iter().find(named) {
            return Some(tool);
        }
        Some(self.stand_ins.push(source.stand_in(name)?))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        let offer = self.source.as_ref().map(|source| self.current_offer(source));
        let offered = offer.into_iter().flat_map(|offer| offer.tools.iter());
        self.tools.iter().chain(offered).map(|tool| &*tool.spec().name)
    }

    /// Returns the specs for a model request. From then on, the agent has exactly these tools.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        let Some(source) = &self.source else { return self.own_specs() };
        let tools = source.offer();
        match self.offers.iter().last() {
            Some(offer) if Arc::ptr_eq(&offer.tools, &tools) => offer.specs.clone(),
            _ => self.add_offer(tools).specs.clone(),
        }
    }

    fn own_specs(&self) -> Arc<[ToolSpec]> {
        let specs = || self.tools.iter().map(|tool| tool.spec().clone()).collect();
        self.specs.get_or_init(specs).clone()
    }

    fn current_offer(&self, source: &Arc<dyn ToolSource>) -> &ToolOffer {
        self.offers.iter().last().unwrap_or_else(|| self.add_offer(source.offer()))
    }

    fn add_offer(&self, tools: Arc<[Tool]>) -> &ToolOffer {
        let own = self.own_specs();
        let is_new = |spec: &&ToolSpec| own.iter().all(|other| other.name != spec.name);
        let offered = tools.iter().map(|tool| tool.spec()).filter(is_new);
        let specs = own.iter().chain(offered).cloned().collect();
        self.offers.push(ToolOffer { tools, specs })
    }
}

impl FromIterator<Tool> for ToolSet {
    fn from_iter<I: IntoIterator<Item = Tool>>(tools: I) -> Self {
        let mut all = Self::default();
        tools.into_iter().for_each(|tool| all.add(tool));
        all
    }
}

/// A list that grows while its elements are borrowed.
struct AppendOnlyList<T>(OnceLock<Box<(T, AppendOnlyList<T>)>>);

impl<T> AppendOnlyList<T> {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::successors(self.0.get(), |node| node.1.0.get()).map(|node| &node.0)
    }

    fn push(&self, element: T) -> &T {
        let mut end = self;
        let mut node = Box::new((element, Self::new()));
        while let Err(rejected) = end.0.set(node) {
            // Another thread has filled this node.
            node = rejected;
            end = &end.filled_node().1;
        }
        &end.filled_node().0
    }

    fn filled_node(&self) -> &(T, Self) {
        self.0.get().expect("the node is filled before this call")
    }
}

impl<T> Default for AppendOnlyList<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A clone is empty: each agent collects its own offers.
impl<T> Clone for AppendOnlyList<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T> Debug for AppendOnlyList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AppendOnlyList").field(&self.iter().count()).finish()
    }
}
