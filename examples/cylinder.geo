// Channel with a cylinder across it, one layer of tetrahedra thick; lengths in m.
// Gmsh 4.15.2 made cylinder.msh from this file: gmsh -3 examples/cylinder.geo
wall = 0.06;  fine = 0.008;     // size of elements at the walls and on the cylinder
Point(1) = {0, 0, 0, wall};
Point(2) = {2.2, 0, 0, wall};
Point(3) = {2.2, 0.41, 0, wall};
Point(4) = {0, 0.41, 0, wall};
Point(5) = {0.2, 0.2, 0};       // centre of the cylinder
Point(6) = {0.25, 0.2, 0, fine};
Point(7) = {0.2, 0.25, 0, fine};
Point(8) = {0.15, 0.2, 0, fine};
Point(9) = {0.2, 0.15, 0, fine};
Line(1) = {1, 2};  Line(2) = {2, 3};  Line(3) = {3, 4};  Line(4) = {4, 1};
Circle(5) = {6, 5, 7};  Circle(6) = {7, 5, 8};  Circle(7) = {8, 5, 9};  Circle(8) = {9, 5, 6};
Curve Loop(1) = {1, 2, 3, 4};
Curve Loop(2) = {5, 6, 7, 8};
Plane Surface(1) = {1, 2};      // the channel less the cylinder
side[] = Extrude {0, 0, 0.02} { Surface{1}; Layers{1}; };
Physical Surface("back") = {1};
Physical Surface("front") = {side[0]};
Physical Surface("walls") = {side[2], side[4]};
Physical Surface("outlet") = {side[3]};
Physical Surface("inlet") = {side[5]};
Physical Surface("cylinder") = {side[6], side[7], side[8], side[9]};
Physical Volume("fluid") = {side[1]};
