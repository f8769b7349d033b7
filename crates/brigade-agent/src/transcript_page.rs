//! Reads a transcript in pages, so that a reader needs only the journal's entries of one page.

use std::fmt;
use std::str::FromStr;

use brigade_model::call::JournalEntry;
use brigade_model::ids::Seq;
use brigade_model::quote_mark::QuoteMark;
use brigade_model::refusal::Refusal;

use crate::transcript_text::{EntryReader, TranscriptItem};

/// The size of the items after which a page is complete. It is far below the 16 MiB of a reply, since
/// text grows when it is written as JSON.
const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Items of a transcript that follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptPage {
    /// The index of the first item in the whole transcript.
    pub first_index: usize,
    pub items: Vec<TranscriptItem>,
    /// The place of the next page; `None` if there are no more items yet.
    pub next: Option<TranscriptPlace>,
}

/// The place in a transcript at which a page starts. Its text form is opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscriptPlace {
    /// The last entry before the page.
    order: Seq,
    /// The index of the next item.
    index: usize,
    /// The call of the last model reply before the page, which the numbers of results refer to.
    reply_index: u32,
}

impl fmt::Display for TranscriptPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.order.0, self.index, self.reply_index)
    }
}

impl FromStr for TranscriptPlace {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parse = || {
            let mut parts = text.split('-');
            let order = Seq(parts.next()?.parse().ok()?);
            let index = parts.next()?.parse().ok()?;
            let reply_index = parts.next()?.parse().ok()?;
            let place = Self { order, index, reply_index };
            // A sign or a zero in front of a number is not what was written.
            (place.to_string() == text).then_some(place)
        };
        parse().ok_or_else(|| Refusal::invalid("this is not a place in a transcript"))
    }
}

/// Collects the items of one page from the entries of a journal.
#[derive(Debug)]
pub struct TranscriptPager {
    reader: EntryReader,
    /// The place after the last entry.
    place: TranscriptPlace,
    limit: usize,
    /// The size of the items so far.
    bytes: usize,
    page: TranscriptPage,
}

impl TranscriptPager {
    /// Starts at the beginning of a transcript: its first item is the task.
    pub fn new(task: &str, mark: Option<QuoteMark>, limit: usize) -> Self {
        let start = TranscriptPlace { order: Seq(0), index: 0, reply_index: 0 };
        let mut pager = Self::resume(start, mark, limit);
        pager.page.items.push(TranscriptItem::text("task", task));
        pager.bytes = task.len();
        pager.place.index = 1;
        pager
    }

    /// Starts at the place of a page.
    pub fn resume(start: TranscriptPlace, mark: Option<QuoteMark>, limit: usize) -> Self {
        let page = TranscriptPage { first_index: start.index, items: Vec::new(), next: None };
        let reader = EntryReader::new(mark, start.reply_index);
        Self { reader, place: start, limit, bytes: 0, page }
    }

    /// Returns the order of the last entry: the next one to push follows it.
    pub fn order(&self) -> Seq {
        self.place.order
    }

    /// Adds the next entry. Returns false if its item does not fit the page, which is then complete.
    pub fn push(&mut self, entry: &JournalEntry) -> bool {
        let item = self.reader.read(entry);
        let bytes = item.as_ref().map_or(0, TranscriptItem::size);
        if item.is_some() && !self.has_space(bytes) {
            self.page.next = Some(self.place);
            return false;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.place.index = self.place.index.saturating_add(usize::from(item.is_some()));
        self.place.order = entry.order;
        self.place.reply_index = self.reader.reply_index();
        self.page.items.extend(item);
        true
    }

    /// Returns true if an item fits the page. The first one always does.
    fn has_space(&self, bytes: usize) -> bool {
        let count = self.page.items.len();
        let fits = self.bytes.saturating_add(bytes) <= PAGE_BYTES_MAX;
        count < self.limit && (count == 0 || fits)
    }

    pub fn finish(self) -> TranscriptPage {
        self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript_text::{list_transcript, tests::journal};

    #[test]
    fn pages_have_the_items_of_the_whole_transcript() {
        let entries = journal();
        let whole: Vec<String> = list_transcript("go", None, entries.clone())
            .iter()
            .map(|item| format!("{} {:?}", item.role, item.content))
            .map(|text| text.replace("is_ambiguous: true", "is_ambiguous: false"))
            .collect();
        for limit in 1..=whole.len() + 1 {
            let mut found = Vec::new();
            let mut pager = TranscriptPager::new("go", None, limit);
            loop {
                let order = pager.order();
                let rest = entries.iter().filter(|entry| entry.order > order);
                let _is_full = !rest.into_iter().all(|entry| pager.push(entry));
                let page = pager.finish();
                assert_eq!(page.first_index, found.len());
                assert!(page.items.len() <= limit);
                let items = page.items.iter();
                let items = items.map(|item| format!("{} {:?}", item.role, item.content));
                found.extend(
                    items.map(|text| text.replace("is_ambiguous: true", "is_ambiguous: false")),
                );
                let Some(next) = page.next else { break };
                let next: TranscriptPlace = next.to_string().parse().expect("its own text");
                pager = TranscriptPager::resume(next, None, limit);
            }
            assert_eq!(found, whole, "{limit}");
        }
    }

    #[test]
    fn a_page_is_bounded_in_bytes() {
        let long = "x".repeat(PAGE_BYTES_MAX);
        let mut pager = TranscriptPager::new(&long, None, 100);
        let entries = journal();
        assert!(!entries.iter().all(|entry| pager.push(entry)), "the task fills the page");
        let page = pager.finish();
        assert_eq!(page.items.len(), 1);
        let mut pager = TranscriptPager::resume(page.next.expect("another page"), None, 100);
        assert!(entries.iter().all(|entry| pager.push(entry)));
        let whole = list_transcript(&long, None, entries).len();
        assert_eq!(pager.finish().items.len() + 1, whole);
    }

    #[test]
    fn other_texts_are_no_places() {
        for wrong in
            ["", "1", "1-2", "1-2-3-4", "+1-2-3", "01-2-3", "1-2-x", "-1-2-3", "1-2-5000000000"]
        {
            assert!(wrong.parse::<TranscriptPlace>().is_err(), "{wrong}");
        }
    }
}
