//! The tools of one agent: those it has from the beginning, and those that come and go.

use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};

use brigade_llm::ToolSpec;

use crate::tool::{BoxFuture, Tool};

/// The tools of one agent, by name. Of two with the same name the later one counts.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    /// As they are told to models, once somebody asks.
    specs: OnceLock<Arc<[ToolSpec]>>,
    source: Option<Arc<dyn ToolSource>>,
    /// What the source has offered so far. Calls of a message hold on to the tools that the model
    /// was told of, while the next ones are offered already.
    offers: AppendOnlyList<ToolOffer>,
    stand_ins: AppendOnlyList<Arc<dyn Tool>>,
}

#[derive(Debug)]
struct ToolOffer {
    tools: Arc<[Arc<dyn Tool>]>,
    /// Of all tools that the agent has with it.
    specs: Arc<[ToolSpec]>,
}

/// Tools that come and go while an agent works, as those of a server.
pub trait ToolSource: Debug + Send + Sync + 'static {
    /// Returns when what there is to begin with is there, or does not come.
    fn wait_until_ready(&self) -> BoxFuture<'_, ()>;

    /// What there is by now: the same one for as long as nothing has changed.
    fn offer(&self) -> Arc<[Arc<dyn Tool>]>;

    /// Answers for a tool of the source that is not there at the moment.
    fn stand_in(&self, name: &str) -> Option<Arc<dyn Tool>>;
}

impl ToolSet {
    pub fn add(&mut self, tool: Arc<dyn Tool>) {
        self.specs = OnceLock::new();
        let name = tool.spec().name.clone();
        self.tools.retain(|other| other.spec().name != name);
        self.tools.push(tool);
    }

    /// Tools beside those that were added, which win over them.
    pub fn add_source(&mut self, source: Arc<dyn ToolSource>) {
        (self.source, self.offers, self.stand_ins) =
            (Some(source), AppendOnlyList::new(), AppendOnlyList::new());
    }

    /// Of those that were added.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.specs = OnceLock::new();
        self.tools.retain(|tool| keep(&tool.spec().name));
    }

    /// Waits for those that are to come.
    pub async fn wait_until_ready(&self) {
        if let Some(source) = &self.source {
            source.wait_until_ready().await;
        }
    }

    /// The tool that a model means, which was told of it by [`Tools::specs`].
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let named = |tool: &&Arc<dyn Tool>| &*tool.spec().name == name;
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

    /// What a model is told of: from here on, these are the tools that the agent has.
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

    fn add_offer(&self, tools: Arc<[Arc<dyn Tool>]>) -> &ToolOffer {
        let own = self.own_specs();
        let is_new = |spec: &&ToolSpec| own.iter().all(|other| other.name != spec.name);
        let offered = tools.iter().map(|tool| tool.spec()).filter(is_new);
        let specs = own.iter().chain(offered).cloned().collect();
        self.offers.push(ToolOffer { tools, specs })
    }
}

impl FromIterator<Arc<dyn Tool>> for ToolSet {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Tool>>>(tools: I) -> Self {
        let mut all = Self::default();
        tools.into_iter().for_each(|tool| all.add(tool));
        all
    }
}

/// Grows at its end while what is on it is in use.
struct AppendOnlyList<T>(OnceLock<Box<(T, AppendOnlyList<T>)>>);

impl<T> AppendOnlyList<T> {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::successors(self.0.get(), |place| place.1.0.get()).map(|place| &place.0)
    }

    fn push(&self, thing: T) -> &T {
        let mut end = self;
        let mut place = Box::new((thing, Self::new()));
        while let Err(back) = end.0.set(place) {
            // Somebody else has put something there.
            place = back;
            end = &end.filled_node().1;
        }
        &end.filled_node().0
    }

    fn filled_node(&self) -> &(T, Self) {
        self.0.get().expect("it is asked for when something was put there")
    }
}

impl<T> Default for AppendOnlyList<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Another agent sees for itself what there is.
impl<T> Clone for AppendOnlyList<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T> Debug for AppendOnlyList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shelf").field(&self.iter().count()).finish()
    }
}
