#include "composer/data/mds/mds_index.h"

#include <algorithm>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/net/plain_path.h"

namespace composer::data::detail {
namespace {

using formats::JsonReader;
using formats::shown;

constexpr std::uint64_t kMostShardBytes = std::numeric_limits<std::uint32_t>::max();  // places in a shard have 32 bits

// Reads the known structure key by key.
class IndexReader {
 public:
  IndexReader(std::string_view text, const std::string& name) : text_(text), name_(name), json_(text, name) {}

  std::vector<MdsShardInfo> read() {
    std::vector<MdsShardInfo> shards;
    bool has_version = false, has_shards = false;
    json_.begin_object();
    for (std::string key; json_.next_key(key);) {
      if (key == "version") {
        check_version();
        has_version = true;
      } else if (key == "shards" && !has_shards) {
        has_shards = true;
        json_.begin_array();
        while (json_.next_item()) {
          in_shard_ = shards.size();
          shards.push_back(shard());
        }
        in_shard_.reset();
      } else {
        unknown(key);
      }
    }
    json_.end();
    if (!has_version || !has_shards) fail("needs \"version\" and \"shards\"");
    return shards;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(name_, ": ", in_shard_ ? join("shard ", *in_shard_, ": ") : "", what);
  }
  [[noreturn]] void unknown(const std::string& key) const {
    fail(join("\"", shown(key), "\" is unknown, or is there twice"));
  }

  bool is_null() {
    const std::size_t at = json_.position();
    if (at == text_.size() || text_[at] != 'n') return false;
    json_.null();
    return true;
  }

  void check_version() {
    const std::int64_t version = json_.integer();
    if (version != 2) fail(join("is of version ", version, " of MDS, and version 2 is read"));
  }

  std::vector<std::string> strings() {
    std::vector<std::string> all;
    json_.begin_array();
    while (json_.next_item()) all.push_back(json_.string());
    return all;
  }

  MdsFile file() {
    MdsFile file;
    bool has_bytes = false;
    json_.begin_object();
    for (std::string key; json_.next_key(key);) {
      if (key == "basename") {
        file.name = json_.string();
      } else if (key == "bytes") {
        file.bytes = static_cast<std::uint64_t>(json_.integer());
        has_bytes = true;
      } else if (key == "hashes") {
        json_.begin_object();
        for (std::string algorithm; json_.next_key(algorithm);) file.hashes.emplace_back(algorithm, json_.string());
      } else {
        unknown(key);
      }
    }
    if (!net::is_plain_path(file.name) || file.name.find('\0') != std::string::npos || file.name == kMdsIndex)
      fail(join("\"", shown(file.name), "\" cannot be the name of a shard's file"));
    if (!has_bytes) fail(join(shown(file.name), " needs \"bytes\""));
    if (!names_.insert(file.name).second) fail(join(shown(file.name), " is there twice"));
    return file;
  }

  struct Parts {
    std::vector<std::string> names, encodings;
    std::vector<std::optional<std::int64_t>> sizes;
  };

  MdsShardInfo shard() {
    MdsShardInfo info;
    Parts parts;
    std::set<std::string> seen;
    json_.begin_object();
    for (std::string key; json_.next_key(key);) {
      if (!seen.insert(key).second) unknown(key);
      if (key == "column_names") {
        parts.names = strings();
      } else if (key == "column_encodings") {
        parts.encodings = strings();
      } else if (key == "column_sizes") {
        json_.begin_array();
        while (json_.next_item()) parts.sizes.push_back(is_null() ? std::nullopt : std::optional(json_.integer()));
      } else if (key == "compression") {
        if (!is_null()) info.compression = json_.string();
      } else if (key == "format") {
        const std::string format = json_.string();
        if (format != "mds") fail(join("is in the format \"", shown(format), "\", and mds is read"));
      } else if (key == "hashes") {
        strings();
      } else if (key == "raw_data") {
        info.raw = file();
      } else if (key == "samples") {
        info.samples = json_.integer();
      } else if (key == "size_limit") {
        if (!is_null()) json_.integer();
      } else if (key == "version") {
        check_version();
      } else if (key == "zip_data") {
        if (!is_null()) info.zip = file();
      } else {
        unknown(key);
      }
    }
    for (const char* key :
         {"column_names", "column_encodings", "column_sizes", "format", "raw_data", "samples", "version"})
      if (!seen.contains(key)) fail(join("needs \"", key, "\""));
    check_sizes(info);
    info.columns = columns(parts);
    return info;
  }

  void check_sizes(const MdsShardInfo& info) const {
    if (info.raw.bytes > kMostShardBytes)
      fail(join(shown(info.raw.name), " has ", info.raw.bytes, " bytes, and a shard has at most ", kMostShardBytes));
    if (info.zip && info.zip->bytes > 2 * kMostShardBytes)
      fail(join(shown(info.zip->name), " has ", info.zip->bytes, " bytes, more than any shard"));
    // 4 bytes for their number, 4 for the place of each and of the end
    if (static_cast<std::uint64_t>(info.samples) > kMostShardBytes / 4 ||
        8 + 4 * static_cast<std::uint64_t>(info.samples) > info.raw.bytes)
      fail(join("has ", info.samples, " samples in ", info.raw.bytes, " bytes, which cannot hold them"));
    if (info.zip.has_value() == info.compression.empty())
      fail("needs both \"compression\" and \"zip_data\", or neither");
  }

  std::shared_ptr<const MdsColumns> columns(const Parts& parts) {
    if (parts.names.size() != parts.encodings.size() || parts.names.size() != parts.sizes.size())
      fail(join("has ", parts.names.size(), " column_names, ", parts.encodings.size(), " column_encodings and ",
                parts.sizes.size(), " column_sizes"));
    if (parts.names.empty()) fail("has no columns");
    MdsColumns made;
    for (std::size_t i = 0; i < parts.names.size(); ++i) {
      const std::string &name = parts.names[i], &encoding_name = parts.encodings[i];
      if (std::ranges::count(parts.names, name) > 1) fail(join("has two columns \"", shown(name), '"'));
      const auto encoding = parse_mds_encoding(encoding_name);
      if (!encoding)
        fail(join("column \"", shown(name), "\" has the encoding \"", shown(encoding_name), "\"; known are ",
                  kMdsEncodings));
      const std::int64_t size = parts.sizes[i].value_or(0);  // 0 stands for null
      if (size != (encoding->size ? static_cast<std::int64_t>(*encoding->size) : 0))
        fail(join("column \"", shown(name), "\" has values of ", size, " bytes, and its encoding \"",
                  shown(encoding_name), "\" takes ", encoding->size ? join(*encoding->size) : "any number"));
      made.push_back({name, encoding_name, *encoding});
    }
    const auto same = [](const MdsColumn& a, const MdsColumn& b) {
      return a.name == b.name && a.encoding_name == b.encoding_name;
    };
    if (!last_ || !std::ranges::equal(*last_, made, same)) last_ = std::make_shared<const MdsColumns>(std::move(made));
    return last_;
  }

  std::string_view text_;
  const std::string& name_;
  JsonReader json_;
  std::optional<std::size_t> in_shard_;
  std::set<std::string> names_;
  std::shared_ptr<const MdsColumns> last_;
};

// As Python's json writes it, which leaves nothing but ASCII.
std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true); }

template <class Range, class Text>
std::string listed(const Range& range, const Text& text) {
  std::string all;
  for (const auto& item : range) all += (all.empty() ? "" : ", ") + text(item);
  return all;
}

std::string file_text(const std::optional<MdsFile>& file) {
  if (!file) return "null";
  const std::string hashes =
      listed(file->hashes, [](const auto& hash) { return quoted(hash.first) + ": " + quoted(hash.second); });
  return join("{\"basename\": ", quoted(file->name), ", \"bytes\": ", file->bytes, ", \"hashes\": {", hashes, "}}");
}

std::string first_keys(const MdsShape& shape) {
  const auto columns = [&](auto text) { return "[" + listed(shape.columns, text) + "]"; };
  return join("{\"column_encodings\": ", columns([](const MdsColumn& c) { return quoted(c.encoding_name); }),
              ", \"column_names\": ", columns([](const MdsColumn& c) { return quoted(c.name); }),
              ", \"column_sizes\": ",
              columns([](const MdsColumn& c) { return c.encoding.size ? join(*c.encoding.size) : "null"; }),
              ", \"compression\": ", shape.compression.empty() ? "null" : quoted(shape.compression),
              ", \"format\": \"mds\", \"hashes\": [", listed(shape.hashes, quoted), "]");
}

std::string size_limit_text(const MdsShape& shape) { return shape.size_limit ? join(*shape.size_limit) : "null"; }

}  // namespace

const std::string* MdsFile::hash(std::string_view algorithm) const {
  const auto found = std::ranges::find(hashes, algorithm, &std::pair<std::string, std::string>::first);
  return found == hashes.end() ? nullptr : &found->second;
}

std::vector<MdsShardInfo> read_mds_index(std::string_view text, const std::string& name) {
  try {
    return IndexReader(text, name).read();
  } catch (const CheckpointError& error) {  // of the text as JSON
    throw DataError(error.what(), "; it is not the index.json of an MDS data set, or is damaged");
  }
}

std::string mds_config_text(const MdsShape& shape) {
  return join(first_keys(shape), ", \"size_limit\": ", size_limit_text(shape), ", \"version\": 2}");
}

std::string mds_index_text(const MdsShape& shape, const std::vector<MdsShardInfo>& shards) {
  const auto text = [&](const MdsShardInfo& shard) {
    return join(first_keys(shape), ", \"raw_data\": ", file_text(shard.raw), ", \"samples\": ", shard.samples,
                ", \"size_limit\": ", size_limit_text(shape), ", \"version\": 2, \"zip_data\": ", file_text(shard.zip),
                "}");
  };
  return join("{\"shards\": [", listed(shards, text), "], \"version\": 2}");
}

}  // namespace composer::data::detail
