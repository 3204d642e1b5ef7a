#pragma once
// Reads offline runs of W&B. Shares nothing with what writes them.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/loggers/event_reader.h"

namespace composer::test {

// CRC-32 of zlib, one bit at a time.
inline std::uint32_t slow_crc32(std::string_view bytes) {
  std::uint32_t sum = 0xFFFFFFFF;
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((sum ^ (static_cast<unsigned char>(c) >> bit)) & 1) != 0;
      sum = (sum >> 1) ^ (odd ? 0xEDB88320U : 0U);
    }
  return ~sum;
}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct WandBFile {
  struct Record {
    int kind = 0;  // the number of its field
    std::string bytes;
  };
  std::vector<Record> records;
  std::vector<nlohmann::json> history;
  nlohmann::json config, summary;  // as they are at the end; keys of a path are joined by dots
  std::vector<std::string> files;
  Message run() const { return Message(records.at(1).bytes); }
  std::vector<std::int64_t> steps(const std::string& key) const {
    std::vector<std::int64_t> steps;
    for (const auto& row : history)
      if (row.contains(key)) steps.push_back(row["_step"]);
    return steps;
  }
  // The code with which the run has ended; -1 if it has not.
  int exit_code() const {
    if (records.back().kind != 18) return -1;
    return static_cast<int>(Message(records.back().bytes).whole(1));
  }
};

// JSON, in which infinite numbers and NaN become texts.
inline nlohmann::json parsed(const std::string& json) {
  for (const char* odd : {"NaN", "Infinity", "-Infinity"})
    if (json == odd) return odd;
  return nlohmann::json::parse(json);
}

inline nlohmann::json items_of(const Message& message) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& field : message.all(1)) {
    const Message item(field.bytes);
    std::string key = item.text(1);
    for (const auto& part : item.all(2)) (key += key.empty() ? "" : ".") += part.bytes;
    all[key] = parsed(item.text(16));
  }
  return all;
}

// Throws for a wrong checksum, and for a file that ends within a record.
inline WandBFile read_wandb_file(const std::filesystem::path& path) {
  const std::string all = content_of(path);
  if (all.substr(0, 7) != std::string(":W&B\xe1\xbe\0", 7)) throw std::runtime_error("the file begins wrongly");
  WandBFile file;
  std::string whole;
  bool in_record = false;
  for (std::size_t at = 7; at < all.size();) {
    if (const std::size_t left = 32768 - at % 32768; left < 7) {
      if (all.substr(at, left) != std::string(left, '\0')) throw std::runtime_error("the end of a block is not empty");
      at += left;
      continue;
    }
    std::string_view rest = std::string_view(all).substr(at);
    const auto sum = static_cast<std::uint32_t>(Message::fixed(Message::take(rest, 4)));
    const auto length = Message::fixed(Message::take(rest, 2));
    const std::string_view body = Message::take(rest, length + 1);
    if (at / 32768 != (at + 6 + length) / 32768) throw std::runtime_error("a chunk crosses blocks");
    if (slow_crc32(body) != sum) throw std::runtime_error("a checksum is wrong");
    const int type = body[0];
    if (in_record != (type == 3 || type == 4)) throw std::runtime_error("a chunk of a wrong type");
    whole += body.substr(1);
    in_record = type == 2 || type == 3;
    at += 7 + length;
    if (in_record) continue;
    const Message record(whole);
    if (record.whole(1) != file.records.size() + 1) throw std::runtime_error("the number of a record is wrong");
    for (const int kind : {2, 3, 5, 6, 17, 18, 21, 26})
      if (record.has(kind)) file.records.push_back({kind, record.text(kind)});
    const auto& [kind, bytes] = file.records.back();
    const Message message(bytes);
    if (kind == 2) file.history.push_back(items_of(message));
    if (kind == 3) file.summary.update(items_of(message));
    if (kind == 5) file.config.update(items_of(message));
    if (kind == 6)
      for (const auto& entry : message.all(1)) file.files.push_back(Message(entry.bytes).text(1));
    whole.clear();
  }
  if (in_record) throw std::runtime_error("a record is cut off");
  return file;
}

// The folders of the offline runs below this folder's wandb/, sorted.
inline std::vector<std::filesystem::path> wandb_runs(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> runs;
  if (!std::filesystem::exists(folder / "wandb")) return runs;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "wandb")) runs.push_back(entry.path());
  std::sort(runs.begin(), runs.end());
  return runs;
}

// offline-run-<time>-<id>/run-<id>.wandb
inline std::filesystem::path wandb_file_in(const std::filesystem::path& run) {
  const std::string name = run.filename();
  return run / ("run-" + name.substr(name.rfind('-') + 1) + ".wandb");
}

}  // namespace composer::test
