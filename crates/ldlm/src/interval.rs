//! Byte ranges with a number each, found by overlap.
//!
//! A treap in one vector, ordered by start, each node knowing the highest end below it. Insert,
//! remove and the first overlap cost O(log n), no allocation while the vector's capacity lasts.
//! Ranges may overlap and repeat; a range with its number is in at most once.

use std::ops::ControlFlow;

use sheen_types::Extent;

use crate::hash::spread;

/// No node.
const NONE: u32 = u32::MAX;

type Key = (u64, u64, u32);

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    end_max: u64,
    left: u32,
    right: u32,
    priority: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct IntervalTree {
    nodes: Vec<Node>,
    root: u32,
    /// First of the free nodes, chained by `left`.
    free: u32,
    length: usize,
    drawn: u64,
}

impl Default for IntervalTree {
    fn default() -> Self {
        Self { nodes: Vec::new(), root: NONE, free: NONE, length: 0, drawn: 0 }
    }
}

impl IntervalTree {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn insert(&mut self, range: Extent, id: u32) {
        let key = (range.start, range.end, id);
        self.drawn += 1;
        let priority = spread(self.drawn ^ u64::from(id) << 32) as u32;
        let node = Node { key, end_max: range.end, left: NONE, right: NONE, priority };
        let new = if self.free == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let new = self.free;
            self.free = self.nodes[new as usize].left;
            self.nodes[new as usize] = node;
            new
        };
        let (below, above) = self.split(self.root, key);
        let below = self.merge(below, new);
        self.root = self.merge(below, above);
        self.length += 1;
    }

    /// Whether it was in.
    pub(crate) fn remove(&mut self, range: Extent, id: u32) -> bool {
        let key = (range.start, range.end, id);
        let (root, gone) = self.cut(self.root, key);
        self.root = root;
        if gone == NONE {
            return false;
        }
        self.nodes[gone as usize].left = self.free;
        self.free = gone;
        self.length -= 1;
        true
    }

    /// Calls `visit` for each range that shares a byte with `range`, by rising start.
    pub(crate) fn visit<F>(&self, range: Extent, visit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Extent, u32) -> ControlFlow<()>,
    {
        self.visit_below(self.root, range, visit)
    }

    /// Calls `visit` for each range, by falling start.
    pub(crate) fn visit_down<F>(&self, visit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Extent, u32) -> ControlFlow<()>,
    {
        self.down_below(self.root, visit)
    }

    /// The range with the lowest start of those that share a byte with `range`.
    pub(crate) fn first(&self, range: Extent) -> Option<(Extent, u32)> {
        let mut found = None;
        let _ = self.visit(range, &mut |extent, id| {
            found = Some((extent, id));
            ControlFlow::Break(())
        });
        found
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn end_max(&self, index: u32) -> u64 {
        if index == NONE { 0 } else { self.node(index).end_max }
    }

    /// Recomputes a node after its children changed.
    fn recompute(&mut self, index: u32) -> u32 {
        let node = *self.node(index);
        let below = self.end_max(node.left).max(self.end_max(node.right));
        self.nodes[index as usize].end_max = node.key.1.max(below);
        index
    }

    /// Keys below `key`, and the rest.
    fn split(&mut self, index: u32, key: Key) -> (u32, u32) {
        if index == NONE {
            return (NONE, NONE);
        }
        let node = *self.node(index);
        if node.key < key {
            let (below, above) = self.split(node.right, key);
            self.nodes[index as usize].right = below;
            (self.recompute(index), above)
        } else {
            let (below, above) = self.split(node.left, key);
            self.nodes[index as usize].left = above;
            (below, self.recompute(index))
        }
    }

    /// One tree of two, all keys of `below` being below those of `above`.
    fn merge(&mut self, below: u32, above: u32) -> u32 {
        if below == NONE {
            return above;
        }
        if above == NONE {
            return below;
        }
        if self.node(below).priority >= self.node(above).priority {
            self.nodes[below as usize].right = self.merge(self.node(below).right, above);
            self.recompute(below)
        } else {
            self.nodes[above as usize].left = self.merge(below, self.node(above).left);
            self.recompute(above)
        }
    }

    /// The tree without `key`, and the node that had it.
    fn cut(&mut self, index: u32, key: Key) -> (u32, u32) {
        if index == NONE {
            return (NONE, NONE);
        }
        let node = *self.node(index);
        if node.key == key {
            return (self.merge(node.left, node.right), index);
        }
        if key < node.key {
            let (left, gone) = self.cut(node.left, key);
            self.nodes[index as usize].left = left;
            (self.recompute(index), gone)
        } else {
            let (right, gone) = self.cut(node.right, key);
            self.nodes[index as usize].right = right;
            (self.recompute(index), gone)
        }
    }

    fn visit_below<F>(&self, index: u32, range: Extent, visit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Extent, u32) -> ControlFlow<()>,
    {
        if index == NONE || self.node(index).end_max < range.start {
            return ControlFlow::Continue(());
        }
        let node = *self.node(index);
        self.visit_below(node.left, range, visit)?;
        let (start, end, id) = node.key;
        if start > range.end {
            return ControlFlow::Continue(());
        }
        if end >= range.start {
            visit(Extent { start, end }, id)?;
        }
        self.visit_below(node.right, range, visit)
    }

    fn down_below<F>(&self, index: u32, visit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Extent, u32) -> ControlFlow<()>,
    {
        if index == NONE {
            return ControlFlow::Continue(());
        }
        let node = *self.node(index);
        self.down_below(node.right, visit)?;
        visit(Extent { start: node.key.0, end: node.key.1 }, node.key.2)?;
        self.down_below(node.left, visit)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;
    use sheen_types::Extent;

    use super::IntervalTree;

    proptest! {
        #[test]
        fn finds_what_a_list_finds(steps in prop::collection::vec((0u64..60, 0u64..20, 0u32..6, any::<bool>()), 1..120)) {
            let mut tree = IntervalTree::default();
            let mut list: Vec<(Extent, u32)> = Vec::new();
            for (start, length, id, add) in steps {
                let range = Extent { start, end: start + length };
                let at = list.iter().position(|held| *held == (range, id));
                match (add, at) {
                    (true, None) => {
                        tree.insert(range, id);
                        list.push((range, id));
                    }
                    (false, Some(at)) => {
                        prop_assert!(tree.remove(range, id));
                        list.swap_remove(at);
                    }
                    (false, None) => prop_assert!(!tree.remove(range, id)),
                    (true, Some(_)) => {}
                }
                let mut found = Vec::new();
                let _ = tree.visit(range, &mut |extent, id| {
                    found.push((extent, id));
                    ControlFlow::Continue(())
                });
                let mut model: Vec<_> =
                    list.iter().copied().filter(|(held, _)| held.overlaps(&range)).collect();
                model.sort();
                prop_assert_eq!(&found, &model);
                prop_assert_eq!(tree.first(range), model.first().copied());
                prop_assert_eq!(tree.len(), list.len());
            }
        }
    }
}
