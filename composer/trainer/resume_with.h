#pragma once
// Trainers of one program that resume from the same place: TrainerOptions::resume_with.
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/trainer/saved_places.h"
#include "composer/trainer/trainer.h"

namespace composer {

// What a trainer with a save_folder tells the others of its process, while it lives.
class ResumesTogether {
 public:
  // `resumed`: what it goes on from.
  ResumesTogether(const TrainerOptions& options, const std::string& run_name,
                  const std::optional<saving::Found>& resumed);
  ~ResumesTogether();
  ResumesTogether(const ResumesTogether&) = delete;
  ResumesTogether& operator=(const ResumesTogether&) = delete;

  // Of Manifest: trainers that resume together have one; empty: this one does not.
  std::string program() const { return program_ ? *program_ : ""; }
  // Before the first fit, when all of them exist. Throws ConfigError unless there is a trainer for each folder that
  // this one names, and those that name each other name the same ones and have the same save_interval.
  void check() const;
  void begin_fit();  // from now on, another one cannot be made again alone
  // Before a periodic checkpoint, when those before it are on disk. Throws ConfigError if the program could not be
  // started again after a kill, because the trainers would have no checkpoint in common any more, or if they do not
  // take equal turns. Waits for what others are writing if that decides it.
  void plan_save(const SavedPlace& place);
  void begin_writing(std::shared_future<bool> written);  // of what was planned: true once it is on disk
  void drop_plan();                                      // that is not written, and nothing is deleted for it

 private:
  void find_begun();
  const std::string& canonical_folder() const;
  std::vector<std::string> named_folders() const;

  std::string folder_, save_interval_;
  std::int64_t keep_;
  std::vector<std::string> named_;
  SavedPlaces before_plan_;
  std::shared_ptr<const std::string> program_;
  std::int64_t number_ = 0;             // of this one among all
  std::vector<std::int64_t> late_for_;  // trainers that it names, and that had begun a fit when it was made
  bool has_begun_ = false;
  mutable std::string canonical_;  // once somebody has asked
};

// Throws ConfigError for options with which trainers cannot resume together; before any callback is opened.
void check_resume_with(const TrainerOptions& options);

}  // namespace composer
