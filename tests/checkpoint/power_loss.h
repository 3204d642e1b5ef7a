#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "composer/checkpoint/file_system.h"

namespace composer::test {

// Does what it is asked to, and keeps in mind what of it is certain to be on the disk if power fails: bytes of a file
// since the file was synced, names since all folders that they are in were. Everything else may have happened or not,
// each change for itself, but only to what is there: a name that was never made cannot be renamed.
class PowerLoss final : public saving::FileSystem {
 public:
  enum class Forgets : std::uint8_t { NOTHING, FILES, FOLDERS };  // which syncs do nothing
  explicit PowerLoss(Path root, Forgets forgets = Forgets::NOTHING);

  void make_folder(const Path& path) override;
  int create(const Path& path) override;
  void write(int file, const Path& path, std::uint64_t offset, const void* data, std::size_t size) override;
  void start_sync(int file, const Path& path, std::uint64_t offset, std::uint64_t size) override;
  void sync(int file, const Path& path) override;
  void close(int file, const Path& path) override;
  void sync_folder(const Path& path) override;
  void rename(const Path& from, const Path& to) override;
  bool rename_if_free(const Path& from, const Path& to) override;
  bool exchange(const Path& a, const Path& b) override;
  bool make_link(const Path& target, const Path& path) override;
  void remove(const Path& path) override;

  bool can_exchange = true;
  Path unmovable = {};  // a folder that cannot be renamed, as one of a lower layer of an overlay

  // A moment: after so many calls.
  std::size_t calls() const { return calls_; }
  void settle();  // everything that was done until now is on the disk

  // One content of the root that may be found after a failure at that moment.
  struct Disk {
    std::map<std::string, std::string> files, links;  // by path below the root: content, target
    std::set<std::string> folders;
    auto operator<=>(const Disk&) const = default;
    void put_into(const Path& folder) const;
  };
  // Different ones: all of them if few changes are uncertain, else `most` that are drawn, among them those of which
  // all, none, all but one or only one has happened.
  std::set<Disk> after_failure(std::size_t moment, std::size_t most, std::mt19937_64& random) const;

 private:
  using Node = std::size_t;
  struct Slot {
    Node folder = 0;
    std::string name = {};
  };
  enum class Kind : std::uint8_t { ADD, REMOVE, RENAME, EXCHANGE, WRITE };
  struct Change {
    Kind kind = Kind::ADD;
    std::size_t call = 0;
    Node node = 0;          // that is added, removed, renamed or written
    Slot at = {}, to = {};  // to: of RENAME and EXCHANGE
    Node other = 0;         // of EXCHANGE: what is at `to`
    std::uint64_t offset = 0;
    std::string bytes = {};
    std::set<Node> unsynced = {};
    std::size_t certain = std::numeric_limits<std::size_t>::max();  // since this call
  };
  struct Tree {
    std::map<Node, std::map<std::string, Node>> folders;
    std::map<Node, std::string> files, links;
  };
  // How much of a change has happened.
  enum class Share : std::uint8_t { NONE, ALL, HALF };  // HALF: of a write

  static void apply(const Change& change, Share share, Tree& tree);
  Slot slot_of(const Path& path) const;
  Node node_at(const Path& path) const;
  void note(Change change);
  void note_renamed(const Path& from, const Path& to);
  void synced(Node node);
  void add(const Path& path, Node node);
  void remove_below(const Slot& slot);
  Disk disk_of(std::size_t moment, const std::vector<Share>& shares) const;
  std::vector<std::size_t> uncertain_at(std::size_t moment) const;

  Path root_;
  Forgets forgets_;
  std::size_t calls_ = 0;
  Node next_ = 1;  // 0 is the root
  Tree live_, first_;
  std::map<Node, std::string> targets_;
  std::set<Node> folders_;
  std::vector<Change> changes_;
};

}  // namespace composer::test
