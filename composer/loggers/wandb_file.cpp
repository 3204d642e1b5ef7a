#include "composer/loggers/wandb_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <unistd.h>
#include <zlib.h>

#include "composer/loggers/json_text.h"
#include "composer/loggers/this_process.h"

namespace composer::loggers {
namespace {

constexpr std::size_t kWandBBlock = 32'768, kHeader = 7;

Protobuf timestamp(double seconds) {
  const double whole = std::floor(seconds);
  return Protobuf().whole(1, static_cast<std::int64_t>(whole)).whole(2, std::llround((seconds - whole) * 1e9));
}

template <class Items>
Protobuf message_of(const Items& items) {
  Protobuf message;
  for (const auto& [key, json] : items)
    message.message(1, [&key = key, &json = json](Protobuf& item) { item.text(1, key).text(16, json); });
  return message;
}

void add_unless_empty(Protobuf& message, int field, const std::string& text) {
  if (!text.empty()) message.text(field, text);
}

std::string host_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) return "";
  return host.data();
}

// Appends one chunk of a record in a block.
void append_chunk(std::string& bytes, char type, std::string_view data) {
  const std::size_t begin = bytes.size();
  bytes.append(kHeader - 1, '\0') += type;
  bytes += data;
  const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + begin + kHeader - 1),
                           static_cast<uInt>(data.size() + 1));
  for (std::size_t i = 0; i < 4; ++i) bytes[begin + i] = static_cast<char>(sum >> 8 * i);
  for (std::size_t i = 0; i < 2; ++i) bytes[begin + 4 + i] = static_cast<char>(data.size() >> 8 * i);
}

}  // namespace

void append_wandb_json(std::string& json, const Scalar& value) {
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr || std::isfinite(*number))
    append_json(json, value);
  else
    json += std::isnan(*number) ? "NaN" : *number > 0 ? "Infinity" : "-Infinity";
}

std::string wandb_json(const Scalar& value) {
  std::string json;
  append_wandb_json(json, value);
  return json;
}

std::string wandb_file_start() { return std::string(":W&B\xe1\xbe\0", kHeader); }

void append_wandb_framed(std::string& bytes, const Protobuf& record, std::int64_t size) {
  enum : char { FULL = 1, FIRST, MIDDLE, LAST };
  std::string_view rest = record.bytes();
  const auto at = static_cast<std::size_t>(size);
  for (bool is_first = true, is_last = false; !is_last; is_first = false) {
    std::size_t left = kWandBBlock - (at + bytes.size()) % kWandBBlock;
    if (left < kHeader) {
      bytes.append(left, '\0');
      left = kWandBBlock;
    }
    const std::size_t length = std::min(rest.size(), left - kHeader);
    is_last = length == rest.size();
    append_chunk(bytes, is_first ? is_last ? FULL : FIRST : is_last ? LAST : MIDDLE, rest.substr(0, length));
    rest.remove_prefix(length);
  }
}

Protobuf wandb_record(std::int64_t number, std::string_view run_id, const WandBContent& content) {
  return Protobuf().whole(1, number).message(content.field, content.message).message(200, Protobuf().text(1, run_id));
}

WandBContent wandb_header() {
  return {21, Protobuf().message(1, Protobuf().text(1, "libcomposer-" COMPOSER_VERSION).text(2, "0.40.0"))};
}

WandBContent wandb_run(const WandBRun& run, const WandBItems& config) {
  Protobuf message;
  message.text(1, run.id);
  add_unless_empty(message, 2, run.entity);
  add_unless_empty(message, 3, run.project);
  message.message(4, message_of(config));
  add_unless_empty(message, 6, run.group);
  add_unless_empty(message, 7, run.job_type);
  add_unless_empty(message, 8, run.name);
  add_unless_empty(message, 9, run.notes);
  for (const std::string& tag : run.tags) message.text(10, tag);
  add_unless_empty(message, 13, host_name());
  return {17, message.message(17, timestamp(run.started_at))};
}

WandBContent wandb_environment(double started_at, std::string_view writer_id) {
  Protobuf message;
  message.text(1, "Linux").message(3, timestamp(started_at));
  add_unless_empty(message, 6, path_of_program());
  add_unless_empty(message, 12, host_name());
  return {26, message.whole(16, std::thread::hardware_concurrency()).text(199, writer_id)};
}

WandBContent wandb_config(const WandBItems& items) { return {5, message_of(items)}; }

WandBContent wandb_nested_config(const std::vector<std::string>& path, std::string_view json) {
  Protobuf value;
  for (const std::string& key : path) value.text(2, key);
  return {5, Protobuf().message(1, value.text(16, json))};
}

WandBContent wandb_history(std::span<const WandBItem> items, std::int64_t step) {
  return {2, message_of(items).message(2, Protobuf().whole(1, step))};
}

// Written explicitly: when an offline run is sent, its summary is not computed from the history.
WandBContent wandb_summary(std::span<const WandBItem> items) { return {3, message_of(items)}; }

WandBContent wandb_summary_runtime(std::int64_t seconds) {
  const Protobuf value = Protobuf().text(2, "_wandb").text(2, "runtime").text(16, std::to_string(seconds));
  return {3, Protobuf().message(1, value)};
}

// Files that no such record names are not sent.
WandBContent wandb_files(std::span<const std::string> paths, WandBFileType type) {
  Protobuf message;
  for (const std::string& path : paths)
    message.message(1, Protobuf().text(1, path).whole(3, static_cast<std::int64_t>(type)));
  return {6, message};
}

WandBContent wandb_exit(int code, std::int64_t seconds) { return {18, Protobuf().whole(1, code).whole(2, seconds)}; }

}  // namespace composer::loggers
