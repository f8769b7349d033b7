//! A table of values by task number, in pages that are freed when they are empty.

use crate::ids::TaskNo;

const PAGE: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct TaskTable<T> {
    pages: Vec<Option<Box<TablePage<T>>>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct TablePage<T> {
    used: usize,
    slots: Vec<Option<T>>,
}

impl<T> Default for TaskTable<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }
}

impl<T> TaskTable<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, no: TaskNo) -> Option<&T> {
        let (page, slot) = locate(no);
        self.pages.get(page)?.as_ref()?.slots[slot].as_ref()
    }

    pub(crate) fn get_mut(&mut self, no: TaskNo) -> Option<&mut T> {
        let (page, slot) = locate(no);
        self.pages.get_mut(page)?.as_mut()?.slots[slot].as_mut()
    }

    pub(crate) fn insert(&mut self, no: TaskNo, value: T) {
        let (page, slot) = locate(no);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| {
            let mut slots = Vec::new();
            slots.resize_with(PAGE, || None);
            Box::new(TablePage { used: 0, slots })
        });
        if page.slots[slot].replace(value).is_none() {
            page.used += 1;
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, no: TaskNo) -> Option<T> {
        let (at, slot) = locate(no);
        let page = self.pages.get_mut(at)?.as_mut()?;
        let value = page.slots[slot].take()?;
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 {
            self.pages[at] = None;
        }
        Some(value)
    }

    /// Returns the values in ascending order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskNo, &T)> {
        self.pages.iter().enumerate().flat_map(|(page, slots)| {
            slots.iter().flat_map(move |filled| {
                filled.slots.iter().enumerate().filter_map(move |(slot, value)| {
                    let no = TaskNo::new(u32::try_from(page * PAGE + slot + 1).ok()?)?;
                    Some((no, value.as_ref()?))
                })
            })
        })
    }
}

fn locate(no: TaskNo) -> (usize, usize) {
    let index = no.get() as usize - 1;
    (index / PAGE, index % PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_pages_are_freed() {
        let mut table = TaskTable::default();
        let numbers: Vec<TaskNo> = (1..=1_000).filter_map(TaskNo::new).collect();
        for &no in &numbers {
            table.insert(no, no.get());
        }
        assert_eq!(table.iter().map(|(no, _)| no).collect::<Vec<_>>(), numbers);
        for &no in &numbers[..999] {
            assert_eq!(table.remove(no), Some(no.get()));
            assert_eq!(table.remove(no), None);
        }
        assert_eq!(table.len(), 1);
        assert_eq!(table.pages.iter().filter(|page| page.is_some()).count(), 1);
    }
}
