#include "tests/checkpoint/power_loss.h"

#include <algorithm>
#include <fstream>
#include <utility>

namespace composer::test {

PowerLoss::PowerLoss(Path root, Forgets forgets) : root_(std::move(root)), forgets_(forgets) {
  live_.folders[0] = {};
  first_ = live_;
  folders_ = {0};
}

PowerLoss::Node PowerLoss::node_at(const Path& path) const {
  Node node = 0;
  for (const Path& part : path.lexically_relative(root_))
    if (part != ".") node = live_.folders.at(node).at(part);
  return node;
}

PowerLoss::Slot PowerLoss::slot_of(const Path& path) const { return {node_at(path.parent_path()), path.filename()}; }

void PowerLoss::apply(const Change& change, Share share, Tree& tree) {
  if (share == Share::NONE) return;
  const auto is = [&](const Slot& slot, Node node) {
    const auto folder = tree.folders.find(slot.folder);
    if (folder == tree.folders.end()) return false;
    const auto found = folder->second.find(slot.name);
    return found != folder->second.end() && found->second == node;
  };
  switch (change.kind) {
    case Kind::ADD:
      tree.folders[change.at.folder].emplace(change.at.name, change.node);
      break;
    case Kind::REMOVE:
      if (is(change.at, change.node)) tree.folders[change.at.folder].erase(change.at.name);
      break;
    case Kind::RENAME:
      if (!is(change.at, change.node)) break;
      tree.folders[change.at.folder].erase(change.at.name);
      tree.folders[change.to.folder][change.to.name] = change.node;
      break;
    case Kind::EXCHANGE:
      if (!is(change.at, change.node) || !is(change.to, change.other)) break;
      tree.folders[change.at.folder][change.at.name] = change.other;
      tree.folders[change.to.folder][change.to.name] = change.node;
      break;
    case Kind::WRITE: {
      const std::size_t size = share == Share::HALF ? change.bytes.size() / 2 : change.bytes.size();
      std::string& file = tree.files[change.node];
      if (file.size() < change.offset + change.bytes.size()) file.resize(change.offset + change.bytes.size());
      file.replace(change.offset, size, change.bytes, 0, size);
    }
  }
}

void PowerLoss::note(Change change) {
  change.call = calls_;
  apply(change, Share::ALL, live_);
  changes_.push_back(std::move(change));
}

// Of a folder, or of a file.
void PowerLoss::synced(Node node) {
  for (Change& change : changes_)
    if (change.unsynced.erase(node) > 0 && change.unsynced.empty()) change.certain = calls_;
}

void PowerLoss::settle() {
  for (Change& change : changes_) {
    change.unsynced.clear();
    change.certain = std::min(change.certain, calls_ - 1);
  }
}

void PowerLoss::add(const Path& path, Node node) {
  const Slot slot = slot_of(path);
  note({.kind = Kind::ADD, .node = node, .at = slot, .unsynced = {slot.folder}});
}

void PowerLoss::make_folder(const Path& path) {
  FileSystem::make_folder(path);
  folders_.insert(next_);
  live_.folders[next_] = {};
  add(path, next_++);
  ++calls_;
}

int PowerLoss::create(const Path& path) {
  const int file = FileSystem::create(path);
  live_.files[next_] = "";
  add(path, next_++);
  ++calls_;
  return file;
}

void PowerLoss::write(int file, const Path& path, std::uint64_t offset, const void* data, std::size_t size) {
  FileSystem::write(file, path, offset, data, size);
  const Node node = node_at(path);
  note({.kind = Kind::WRITE,
        .node = node,
        .offset = offset,
        .bytes = std::string(static_cast<const char*>(data), size),
        .unsynced = {node}});
  ++calls_;
}

// Makes nothing certain.
void PowerLoss::start_sync(int file, const Path& path, std::uint64_t offset, std::uint64_t size) {
  FileSystem::start_sync(file, path, offset, size);
  ++calls_;
}

void PowerLoss::sync(int file, const Path& path) {
  FileSystem::sync(file, path);
  if (forgets_ != Forgets::FILES) synced(node_at(path));
  ++calls_;
}

void PowerLoss::close(int file, const Path& path) {
  FileSystem::close(file, path);
  ++calls_;
}

void PowerLoss::sync_folder(const Path& path) {
  FileSystem::sync_folder(path);
  if (forgets_ != Forgets::FOLDERS) synced(node_at(path));
  ++calls_;
}

void PowerLoss::rename(const Path& from, const Path& to) {
  if (from == unmovable)
    throw saving::FileError("could not rename to", to, std::make_error_code(std::errc::cross_device_link));
  FileSystem::rename(from, to);
  note_renamed(from, to);
}

bool PowerLoss::rename_if_free(const Path& from, const Path& to) {
  if (!FileSystem::rename_if_free(from, to)) return false;
  note_renamed(from, to);
  return true;
}

void PowerLoss::note_renamed(const Path& from, const Path& to) {
  const Slot at = slot_of(from), target = slot_of(to);
  note({.kind = Kind::RENAME, .node = node_at(from), .at = at, .to = target, .unsynced = {at.folder, target.folder}});
  ++calls_;
}

bool PowerLoss::exchange(const Path& a, const Path& b) {
  if (!can_exchange) return false;
  FileSystem::exchange(a, b);
  const Slot at = slot_of(a), to = slot_of(b);
  note({.kind = Kind::EXCHANGE,
        .node = node_at(a),
        .at = at,
        .to = to,
        .other = node_at(b),
        .unsynced = {at.folder, to.folder}});
  ++calls_;
  return true;
}

bool PowerLoss::make_link(const Path& target, const Path& path) {
  FileSystem::make_link(target, path);
  targets_[next_] = target.string();
  add(path, next_++);
  ++calls_;
  return true;
}

// What is in it goes name by name.
void PowerLoss::remove_below(const Slot& slot) {
  const Node node = live_.folders.at(slot.folder).at(slot.name);
  if (folders_.contains(node)) {
    const auto entries = live_.folders.at(node);
    for (const auto& [name, inner] : entries) remove_below({node, name});
  }
  note({.kind = Kind::REMOVE, .node = node, .at = slot, .unsynced = {slot.folder}});
}

void PowerLoss::remove(const Path& path) {
  FileSystem::remove(path);
  const Slot slot = slot_of(path);
  if (live_.folders.at(slot.folder).contains(slot.name)) remove_below(slot);
  ++calls_;
}

std::vector<std::size_t> PowerLoss::uncertain_at(std::size_t moment) const {
  std::vector<std::size_t> uncertain;
  for (std::size_t i = 0; i < changes_.size(); ++i)
    if (changes_[i].call < moment && changes_[i].certain >= moment) uncertain.push_back(i);
  return uncertain;
}

PowerLoss::Disk PowerLoss::disk_of(std::size_t moment, const std::vector<Share>& shares) const {
  Tree tree = first_;
  for (std::size_t i = 0; i < changes_.size() && changes_[i].call < moment; ++i) apply(changes_[i], shares[i], tree);
  Disk disk;
  const auto walk = [&](const auto& self, Node node, const std::string& path) -> void {
    for (const auto& [name, inner] : tree.folders[node]) {
      const std::string at = path.empty() ? name : path + '/' + name;
      if (folders_.contains(inner)) {
        disk.folders.insert(at);
        self(self, inner, at);
      } else if (const auto link = targets_.find(inner); link != targets_.end()) {
        disk.links[at] = link->second;
      } else {
        disk.files[at] = tree.files[inner];
      }
    }
  };
  walk(walk, 0, "");
  return disk;
}

std::set<PowerLoss::Disk> PowerLoss::after_failure(std::size_t moment, std::size_t most,
                                                   std::mt19937_64& random) const {
  std::set<Disk> disks;
  const std::vector<std::size_t> uncertain = uncertain_at(moment);
  std::vector<Share> shares(changes_.size(), Share::ALL);
  const auto with = [&](const auto& share_of) {
    for (std::size_t i = 0; i < uncertain.size(); ++i) shares[uncertain[i]] = share_of(i);
    disks.insert(disk_of(moment, shares));
  };
  const auto either = [](bool happened) { return happened ? Share::ALL : Share::NONE; };
  if (uncertain.size() < 20 && std::size_t{1} << uncertain.size() <= most) {
    for (std::size_t bits = 0; bits < std::size_t{1} << uncertain.size(); ++bits)
      with([&](std::size_t i) { return either((bits >> i & 1) != 0); });
  } else {
    for (std::size_t one = 0; one <= uncertain.size(); ++one) {  // the last: all, or none
      with([&](std::size_t i) { return either(i == one); });
      with([&](std::size_t i) { return either(i != one); });
    }
    while (most-- > 0) {
      const std::uint64_t threshold = 1 + random() % 15;
      with([&](std::size_t) { return either(random() % 16 < threshold); });
    }
  }
  with([&](std::size_t i) { return changes_[uncertain[i]].kind == Kind::WRITE ? Share::HALF : Share::ALL; });
  return disks;
}

void PowerLoss::Disk::put_into(const Path& folder) const {
  std::filesystem::create_directories(folder);
  for (const std::string& path : folders) std::filesystem::create_directories(folder / path);
  for (const auto& [path, content] : files) std::ofstream(folder / path, std::ios::binary) << content;
  for (const auto& [path, target] : links) std::filesystem::create_symlink(target, folder / path);
}

}  // namespace composer::test
