#include <Python.h>

#include "places.h"

#include <cstring>
#include <unordered_map>

namespace cuda_double {
namespace {

// Whether a frame is the program's, by its code. Python's lock guards it.
bool is_of_the_program(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, bool>;
  auto found = known->find(code);
  if (found != known->end()) return found->second;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  bool mine = file != nullptr && file[0] != '<';
  for (const char* foreign :
       {"/site-packages/", "/dist-packages/", "/lib/python3",
        "/tests/cuda_double/python/", "/_pytest/"})
    mine = mine && std::strstr(file, foreign) == nullptr;
  // A cell of a notebook is a file of ipykernel's, in a temporary folder.
  if (file == nullptr) PyErr_Clear();
  if (file && std::strncmp(file, "<ipython", 8) == 0) mine = true;
  if (file && std::strcmp(file, "<string>") == 0) mine = true;
  if (file && std::strcmp(file, "<stdin>") == 0) mine = true;
  Py_INCREF(code);  // an address must not come to mean other code
  known->emplace(code, mine);
  return mine;
}

Place frames_of(PyThreadState* thread) {
  Place place;
  size_t count = 0;
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  while (frame != nullptr && count < place.frames.size()) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (is_of_the_program(code))
      place.frames[count++] = {code, PyFrame_GetLasti(frame)};
    Py_DECREF(code);
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  Py_XDECREF(frame);
  return place;
}

// The oldest thread of the interpreter: where backward() was called, mostly.
PyThreadState* main_thread() {
  auto* thread = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
  while (PyThreadState_Next(thread) != nullptr)
    thread = PyThreadState_Next(thread);
  return thread;
}

Place frames_now() {
  Place place = frames_of(PyThreadState_Get());
  if (place.frames[0].code != nullptr) return place;
  place = frames_of(main_thread());
  place.in_backward = true;
  return place;
}

thread_local Place the_last_place;

}  // namespace

bool python_is_going() {
  if (!Py_IsInitialized()) return true;
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

Place here() {
  if (python_is_going()) return {};
  PyGILState_STATE before = PyGILState_Ensure();
  the_last_place = frames_now();
  PyGILState_Release(before);
  return the_last_place;
}

Place last_here() { return the_last_place; }

std::string describe(const Place& place) {
  std::string text;
  for (const Frame& frame : place.frames) {
    if (frame.code == nullptr) break;
    auto* code = static_cast<PyCodeObject*>(const_cast<void*>(frame.code));
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    text += text.empty() ? "" : " < ";
    text += std::string(file ? file : "?") + ":" +
            std::to_string(PyCode_Addr2Line(code, frame.instruction));
  }
  if (text.empty()) return "(no line of the program)";
  return (place.in_backward ? "(another thread, during) " : "") + text;
}

}  // namespace cuda_double
