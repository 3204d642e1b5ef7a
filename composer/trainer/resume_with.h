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

// What a trainer with a save_folder tells the other trainers of its process, during its lifetime.
class ResumesTogether {
 public:
  // `resumed`: the checkpoint from which the trainer resumes.
  ResumesTogether(const TrainerOptions& options, const std::string& run_name,
                  const std::optional<saving::Found>& resumed);
  ~ResumesTogether();
  ResumesTogether(const ResumesTogether&) = delete;
  ResumesTogether& operator=(const ResumesTogether&) = delete;

  // Manifest::program, which is the same for trainers that resume together; empty: this trainer resumes alone.
  std::string program() const { return program_ ? *program_ : ""; }
  // Called before the first fit, when all these trainers exist. Throws ConfigError unless there is a trainer for each
  // folder that this trainer names, and trainers that name each other name the same folders and have the same
  // save_interval.
  void check() const;
  void begin_fit();  // from now on, a trainer that names this one can only be made together with it
  // Called before a periodic checkpoint, when all earlier checkpoints are on disk. Throws ConfigError if the program
  // could not be restarted after a kill, because the trainers would no longer have a checkpoint in common, or if the
  // trainers do not take equal turns. Waits for checkpoints that other trainers are writing if the answer depends on
  // them.
  void plan_save(const SavedPlace& place);
  // Notes that the planned checkpoint is being written; the result is true once it is on disk.
  void begin_writing(std::shared_future<bool> written);
  void drop_plan();  // the planned checkpoint is not written, and nothing is deleted for it

 private:
  void find_begun();
  const std::string& canonical_folder() const;
  std::vector<std::string> named_folders() const;

  std::string folder_, save_interval_;
  std::int64_t keep_;
  std::vector<std::string> named_;
  SavedPlaces before_plan_;
  std::shared_ptr<const std::string> program_;
  std::int64_t number_ = 0;                 // of this trainer, in the order of construction
  std::vector<std::int64_t> begun_before_;  // named trainers that had begun a fit before this one was made
  bool has_begun_ = false;
  mutable std::string canonical_;  // computed at the first use
};

// Throws ConfigError for options with which trainers cannot resume together. Called before any callback is opened.
void check_resume_with(const TrainerOptions& options);

}  // namespace composer
