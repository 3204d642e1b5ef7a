// That saving asks the system itself, and not only FileSystem, to put everything on the disk, and in which order.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "composer/util/new_file.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/system_calls.h"

namespace composer::test::durability_test {
namespace {

namespace fs = std::filesystem;
using saving::CheckpointFolder;

// With short names instead of paths: "" is the save folder, "TMP" a temporary name.
std::vector<std::string> shortened(const std::vector<std::string>& calls, const fs::path& folder) {
  std::vector<std::string> all;
  for (std::string call : calls) {
    for (std::size_t at = call.find(folder.string()); at != std::string::npos; at = call.find(folder.string(), at))
      call.erase(at, folder.string().size());
    for (std::size_t at = call.find(".tmp-"); at != std::string::npos; at = call.find(".tmp-", at)) {
      const std::size_t end = std::min(call.find_first_of("/ ", at), call.size());
      call.replace(at, end - at, "TMP");
    }
    all.push_back(call);
  }
  return all;
}

using Calls = std::vector<std::string>;

TEST_CASE("A new checkpoint: files and folder are synced before the renaming, names after it, then the link's") {
  const Folder folder;
  saving::FileSystem files;
  write(folder / "ck", 1, files, "ba1");
  const SystemCalls calls;
  write(folder / "ck", 2, files, "ba2");
  CHECK(shortened(calls.made(), fs::canonical(folder / "ck")) ==
        Calls{"fdatasync /TMP/model.safetensors", "fdatasync /TMP/state.safetensors", "fdatasync /TMP/manifest.json",
              "fsync /TMP", "rename /TMP /ba2", "fsync ", "rename /TMP /latest", "fsync "});
}

TEST_CASE("A replaced checkpoint: the exchange is synced before the old one is removed and the link moved") {
  const Folder folder;
  saving::FileSystem files;
  write(folder / "ck", 1, files, "sub/ba1");
  const SystemCalls calls;
  write(folder / "ck", 2, files, "sub/ba1");
  CHECK(shortened(calls.made(), fs::canonical(folder / "ck")) ==
        Calls{"fdatasync /TMP/model.safetensors", "fdatasync /TMP/state.safetensors", "fdatasync /TMP/manifest.json",
              "fsync /TMP", "exchange /TMP /sub/ba1", "fsync /sub", "fsync ", "rename /TMP /latest", "fsync "});
}

TEST_CASE("A checkpoint that is replaced without exchanging: each renaming is synced before the next") {
  struct NoExchange final : saving::FileSystem {
    bool exchange(const Path&, const Path&) override { return false; }
  };
  const Folder folder;
  NoExchange files;
  write(folder / "ck", 1, files, "sub/ba1");
  const SystemCalls calls;
  write(folder / "ck", 2, files, "sub/ba1");
  Calls names = shortened(calls.made(), fs::canonical(folder / "ck"));
  std::erase_if(names, [](const std::string& call) { return call.starts_with("fdatasync ") || call == "fsync /TMP"; });
  CHECK(names == Calls{"rename /TMP /sub/ba1.new", "fsync /sub", "fsync ", "rename /sub/ba1 /TMP", "fsync /sub",
                       "fsync ", "rename /sub/ba1.new /sub/ba1", "fsync /sub", "fsync ", "rename /TMP /latest",
                       "fsync "});
}

TEST_CASE(
    "A manifest that gets metrics is replaced in one step, and another one, or one of another run, is left alone") {
  const Folder folder;
  saving::FileSystem files;
  write(folder / "ck", 1, files, "ba1");
  CheckpointFolder own(folder / "ck", "run", files), other(folder / "ck", "other", files);
  CHECK_FALSE(own.add_metrics("ba1", "2", {{"eval/a", 0.5}}));
  CHECK_FALSE(own.add_metrics("ba2", "2", {{"eval/a", 0.5}}));
  CHECK_FALSE(other.add_metrics("ba1", "1", {{"eval/a", 0.5}}));
  CHECK(saving::open_checkpoint(folder / "ck/ba1").manifest.metrics.empty());
  const SystemCalls calls;
  CHECK(own.add_metrics("ba1", "1", {{"eval/a", 0.5}}));
  CHECK(shortened(calls.made(), fs::canonical(folder / "ck")) ==
        Calls{"fdatasync /TMP/manifest.json", "rename /TMP/manifest.json /ba1/manifest.json", "fsync /ba1"});
  CHECK_FALSE(own.add_metrics("ba1", "1", {{"eval/a", 0.75}}));  // what is there stays
  const saving::Found found = saving::open_checkpoint(folder / "ck/ba1");
  CHECK(found.manifest.metrics.at("eval/a") == 0.5);
  CHECK(is_whole(found));
}

TEST_CASE("A new file and the folders made for it are synced before and after the renaming") {
  const Folder folder;
  const fs::path root = fs::canonical(folder.path());
  const SystemCalls calls;
  util::NewFile file(root / "a/b/w.pt");
  file.write("text");
  file.commit();
  Calls made = shortened(calls.made(), root);
  for (std::string& call : made)  // the temporary name is the file's, and more
    if (const auto at = call.find("w.ptTMP"); at != std::string::npos) call.replace(at, 7, "TMP");
  CHECK(made == Calls{"fsync ", "fsync /a", "fsync /a/b/TMP", "rename /a/b/TMP /a/b/w.pt", "fsync /a/b"});
}

}  // namespace
}  // namespace composer::test::durability_test
