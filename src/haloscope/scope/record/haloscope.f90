! Regions of a Fortran program that Haloscope measures: compile this file with the program.
!
!   use haloscope
!   call haloscope_region_begin("solve")
!   ...
!   call haloscope_region_end("solve")
!
! Regions nest. Under `haloscope measure` they are recorded; otherwise the calls do nothing.
! haloscope_pause and haloscope_resume switch the measurement off and on; they are counted.
module haloscope
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: haloscope_region_begin, haloscope_region_end, haloscope_pause, haloscope_resume

  abstract interface
    subroutine named_call(name, length) bind(c)
      import :: c_char, c_size_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_size_t), value :: length
    end subroutine
    subroutine plain_call() bind(c)
    end subroutine
  end interface

  interface
    function dlsym(handle, name) bind(c, name="dlsym") result(address)
      import :: c_ptr, c_char, c_funptr
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr) :: address
    end function
  end interface

  procedure(named_call), pointer, save :: begin_call => null()
  procedure(named_call), pointer, save :: end_call => null()
  procedure(plain_call), pointer, save :: pause_call => null()
  procedure(plain_call), pointer, save :: resume_call => null()
  logical, save :: searched = .false.

contains

  ! Handle 0 searches everything that the program has loaded.
  subroutine search()
    type(c_funptr) :: found
    found = dlsym(c_null_ptr, "haloscope_begin" // c_null_char)
    if (c_associated(found)) call c_f_procpointer(found, begin_call)
    found = dlsym(c_null_ptr, "haloscope_end" // c_null_char)
    if (c_associated(found)) call c_f_procpointer(found, end_call)
    found = dlsym(c_null_ptr, "haloscope_pause" // c_null_char)
    if (c_associated(found)) call c_f_procpointer(found, pause_call)
    found = dlsym(c_null_ptr, "haloscope_resume" // c_null_char)
    if (c_associated(found)) call c_f_procpointer(found, resume_call)
    searched = .true.
  end subroutine

  subroutine haloscope_region_begin(name)
    character(len=*), intent(in) :: name
    if (.not. searched) call search()
    if (associated(begin_call)) call begin_call(name, len(name, c_size_t))
  end subroutine

  subroutine haloscope_region_end(name)
    character(len=*), intent(in) :: name
    if (.not. searched) call search()
    if (associated(end_call)) call end_call(name, len(name, c_size_t))
  end subroutine

  subroutine haloscope_pause()
    if (.not. searched) call search()
    if (associated(pause_call)) call pause_call()
  end subroutine

  subroutine haloscope_resume()
    if (.not. searched) call search()
    if (associated(resume_call)) call resume_call()
  end subroutine

end module haloscope
