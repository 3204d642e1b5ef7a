#pragma once
// Writes files of offline runs of Weights & Biases: builds records, and frames them.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/scalar.h"
#include "composer/util/protobuf.h"

namespace composer::loggers {

using util::Protobuf;

inline constexpr const char* kWandBLogger = "WandBLogger";  // error texts begin with it

// JSON by key. In W&B's JSON, NaN, Infinity and -Infinity are allowed.
using WandBItems = std::map<std::string, std::string>;
std::string wandb_json(const Scalar& value);
void append_wandb_json(std::string& json, const Scalar& value);

struct WandBItem {
  std::string_view key, json;
};

// The first bytes of a file.
std::string wandb_file_start();
// Appends a record to bytes that will follow `size` bytes of a file. The frame is that of a LevelDB log in blocks of 32
// KiB, but its checksum is the CRC-32 (zlib) of type and data.
void append_wandb_framed(std::string& bytes, const Protobuf& record, std::int64_t size);

// The content of a record, and the number of the field for its kind.
struct WandBContent {
  int field = 0;
  Protobuf message;
};
// Records are numbered from 1.
Protobuf wandb_record(std::int64_t number, std::string_view run_id, const WandBContent& content);

struct WandBRun {
  std::string id, project, entity, group, job_type, name, notes;  // empty: unset
  std::vector<std::string> tags;
  double started_at = 0;  // seconds since 1970
};
// The first record, which names the program that wrote the file.
WandBContent wandb_header();
WandBContent wandb_run(const WandBRun& run, const WandBItems& config);
// Describes the machine and the program. `writer_id` is unique for each process.
WandBContent wandb_environment(double started_at, std::string_view writer_id);
WandBContent wandb_config(const WandBItems& items);
// A value below other keys, which are in `path`.
WandBContent wandb_nested_config(const std::vector<std::string>& path, std::string_view json);
WandBContent wandb_history(std::span<const WandBItem> items, std::int64_t step);
WandBContent wandb_summary(std::span<const WandBItem> items);
WandBContent wandb_summary_runtime(std::int64_t seconds);
enum class WandBFileType : std::uint8_t { OTHER = 0, MEDIA = 2 };
WandBContent wandb_files(std::span<const std::string> paths, WandBFileType type);
WandBContent wandb_exit(int code, std::int64_t seconds);

}  // namespace composer::loggers
