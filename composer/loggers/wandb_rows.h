#pragma once
// Collects the rows of an offline run of W&B.
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

// The position of an offline run: what has been written, and the current row.
struct WandBPosition {
  std::int64_t records = 0;    // number of records in the file
  std::int64_t next_step = 0;  // lower limit for the step of the next row
  std::int64_t row_step = 0;
  WandBItems row;       // row of the current step; not in the file yet
  double row_time = 0;  // time of the row's last record, in seconds since 1970
  void visit_state(StateVisitor& visit);
};

// Collects rows and the summary. A row contains what was logged at one step. The summary contains the last value of
// each key.
class WandBRows {
 public:
  bool is_empty() const { return row_.empty(); }  // the current row
  std::int64_t step() const { return position_.row_step; }
  double time() const { return position_.row_time; }

  // Begins the row if it is empty; `time` becomes the row's time. A row of another step must be taken before.
  void begin(std::int64_t step, double time);
  std::string& put(const std::string& key);  // adds the key to the row; returns a reference to its JSON, which is empty
  WandBContent take_row(double runtime);     // requires a row that is not empty
  // The values that have changed since the last summary; unset if there are none.
  std::optional<WandBContent> take_summary();

  WandBPosition position() const;  // without the number of records
  void restore(WandBPosition position);

 private:
  struct Value {
    std::string key, json;  // json: of the current row, if in_row
    std::string last;       // value in the last row that was taken
    bool in_row = false;
    bool is_new = false;  // whether the last summary has an older value
  };
  static std::vector<WandBItem> items_of(const std::vector<Value*>& values, std::string Value::*json);

  WandBPosition position_;  // without the current row
  SequenceMap<Value> values_;
  std::vector<Value*> row_;  // values in the current row
  std::vector<Value*> new_;  // values with is_new
};

}  // namespace composer::loggers
