#pragma once
// The rows of an offline run of W&B.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/loggers/string_map.h"
#include "composer/loggers/wandb_file.h"

namespace composer {
class StateVisitor;
}

namespace composer::loggers {

// How far an offline run is written.
struct WandBPosition {
  std::int64_t records = 0;    // in the file
  std::int64_t next_step = 0;  // the least that the next row may have
  std::int64_t row_step = 0;
  WandBItems row;       // of the current step; not yet in the file
  double row_time = 0;  // seconds since 1970, of its last record
  void visit_state(StateVisitor& visit);
};

// What was logged of one step is a row, and the summary has the last value of each key.
class WandBRows {
 public:
  bool is_empty() const { return row_.empty(); }  // the current row
  std::int64_t step() const { return position_.row_step; }
  double time() const { return position_.row_time; }

  // Something of this step comes into the row; one of another step has been taken before.
  void begin(std::int64_t step, double time);
  std::string& put(const std::string& key);  // into the row; returns its JSON, empty
  WandBContent take_row(double runtime);     // which must not be empty
  // The values that are new since the last summary; unset: none.
  std::optional<WandBContent> take_summary();

  WandBPosition position() const;  // but for the records
  void go_to(WandBPosition position);

 private:
  struct Value {
    std::string key, json;  // json: of the current row, if in_row
    std::string last;       // of the last row that was taken
    bool in_row = false;
    bool is_new = false;  // the last summary has an older one
  };
  static std::vector<WandBItem> items_of(const std::vector<Value*>& values, std::string Value::*json);

  WandBPosition position_;  // without the row
  SequenceMap<Value> values_;
  std::vector<Value*> row_;  // those in the row
  std::vector<Value*> new_;  // and the new ones
};

}  // namespace composer::loggers
